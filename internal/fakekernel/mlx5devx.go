//go:build linux

package fakekernel

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// devxOther passes a command on to the firmware. This module does not issue it, libmlx5
// does when it opens a device.
var devxOther = &uapi.Method{
	Object: abi.MLX5_IB_OBJECT_DEVX, ID: abi.MLX5_IB_METHOD_DEVX_OTHER, Name: "device command",
	Attrs: []uapi.Attr{
		{ID: abi.MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, Class: uapi.PtrIn, Min: 16, Max: uapi.NoLimit, Must: true},
		{ID: abi.MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, Class: uapi.PtrOut, Min: 16, Max: uapi.NoLimit, Must: true},
	},
}

// lookupMethod finds a method that the kernel has, used by this module or not.
func lookupMethod(object, method uint16) *uapi.Method {
	if object == devxOther.Object && method == devxOther.ID {
		return devxOther
	}
	return uapi.Lookup(object, method)
}

// opQueryCaps is MLX5_CMD_OP_QUERY_HCA_CAP.
const opQueryCaps = 0x100

// devxOther: UVERBS_HANDLER(MLX5_IB_METHOD_DEVX_OTHER). The capabilities that the device
// has beyond those of verbs are none.
func (f *verbsFile) devxOther(r *request) error {
	if f.mlx == nil || !f.mlx.devx {
		return unix.EINVAL
	}
	in, err := r.get(abi.MLX5_IB_ATTR_DEVX_OTHER_CMD_IN).in()
	if err != nil {
		return err
	}
	if binary.BigEndian.Uint16(in) != opQueryCaps {
		return unix.EINVAL
	}
	out := r.get(abi.MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT)
	return out.out(make([]byte, out.raw.Len))
}

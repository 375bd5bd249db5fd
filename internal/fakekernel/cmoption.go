//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// maxOption is the largest value of an option: KMALLOC_MAX_SIZE.
const maxOption = 4 << 20

func (f *cmFile) setOption(c cmCall) error {
	in, err := body[abi.RdmaUcmSetOption](c)
	if err != nil {
		return err
	}
	if in.Optlen > maxOption {
		return unix.EINVAL
	}
	id, err := f.find(in.Id)
	if err != nil {
		return err
	}
	val := make([]byte, in.Optlen)
	if err := copyIn(val, in.Optval); err != nil {
		return err
	}
	switch {
	case in.Level == abi.RDMA_OPTION_IB && in.Optname == abi.RDMA_OPTION_IB_PATH:
		return id.setPath(val)
	case in.Level != abi.RDMA_OPTION_ID:
		return unix.ENOSYS
	}
	return id.setIDOption(in.Optname, val)
}

func (c *cmID) setIDOption(name uint32, val []byte) error {
	sizes := map[uint32]int{
		abi.RDMA_OPTION_ID_TOS: 1, abi.RDMA_OPTION_ID_REUSEADDR: 4,
		abi.RDMA_OPTION_ID_AFONLY: 4, abi.RDMA_OPTION_ID_ACK_TIMEOUT: 1,
	}
	size, ok := sizes[name]
	switch {
	case !ok:
		return unix.ENOSYS
	case len(val) != size:
		return unix.EINVAL
	}
	switch name {
	case abi.RDMA_OPTION_ID_TOS:
		c.tos = val[0]
	case abi.RDMA_OPTION_ID_REUSEADDR:
		return c.setReuse(load[uint32](val) != 0)
	case abi.RDMA_OPTION_ID_AFONLY:
		return c.setAFOnly(load[uint32](val) != 0)
	case abi.RDMA_OPTION_ID_ACK_TIMEOUT:
		return c.setTimeout(val[0])
	}
	return nil
}

// setReuse: core/cma.c, rdma_set_reuseaddr.
func (c *cmID) setReuse(reuse bool) error {
	if (!reuse || c.state == cmListen) && c.state != cmIdle {
		return unix.EINVAL
	}
	c.reuse = reuse
	return nil
}

// setAFOnly: core/cma.c, rdma_set_afonly.
func (c *cmID) setAFOnly(only bool) error {
	if c.state != cmIdle && c.state != cmBound {
		return unix.EINVAL
	}
	c.afOnly, c.afSet = only, true
	return nil
}

// setTimeout: core/cma.c, rdma_set_ack_timeout. Whether the value can be one is for the
// queue pair to say.
func (c *cmID) setTimeout(code uint8) error {
	if c.qpType != abi.IB_UVERBS_QPT_RC && c.qpType != abi.IB_UVERBS_QPT_XRC_INI {
		return unix.EINVAL
	}
	c.timeout, c.timeoutSet = code, true
	return nil
}

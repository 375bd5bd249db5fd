package rdmacm

import (
	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// SetTOS sets the type of service of the connection's packets, which on RoCE v2 and iWARP is
// that of IP, on InfiniBand selects the service level. It counts from ResolveRoute on. By
// default RoCE takes default_roce_tos of configfs. Source: rdma_set_option(3).
func (id *ID) SetTOS(tos uint8) error {
	return id.setOption(abi.RDMA_OPTION_ID, abi.RDMA_OPTION_ID_TOS, []byte{tos})
}

// SetReuseAddr lets several ids bind to the same port, as long as none of them listens. All
// of them have to set it, before Bind. Source: rdma_set_option(3).
func (id *ID) SetReuseAddr(on bool) error {
	return id.setFlag(abi.RDMA_OPTION_ID_REUSEADDR, on)
}

// SetAFOnly makes an id that is to be bound to [::] leave IPv4 alone; so another may be bound
// to the same port of 0.0.0.0. It has to come before Bind. Source: rdma_set_option(3).
func (id *ID) SetAFOnly(on bool) error {
	return id.setFlag(abi.RDMA_OPTION_ID_AFONLY, on)
}

// SetAckTimeout sets how long the queue pair waits for an acknowledgement before it sends
// again: 4.096 µs * 2^code, code up to 31; 0 waits for ever. It has to come before Connect or
// Accept; by default the time follows from the route. Only for reliable connections on
// InfiniBand and RoCE. Errors: EINVAL elsewhere. Source: rdma_set_option(3).
func (id *ID) SetAckTimeout(code uint8) error {
	if code > 31 {
		return wrap(opOption, noAddr, invalidError("a timeout has 5 bits"))
	}
	return id.setOption(abi.RDMA_OPTION_ID, abi.RDMA_OPTION_ID_ACK_TIMEOUT, []byte{code})
}

func (id *ID) setFlag(name uint32, on bool) error {
	var v uint32
	if on {
		v = 1
	}
	return id.setOption(abi.RDMA_OPTION_ID, name, uapi.Bytes(&v))
}

func (id *ID) setOption(level, name uint32, val []byte) error {
	return id.do(opOption, noAddr, func() error {
		in := abi.RdmaUcmSetOption{Id: id.kid, Level: level, Optname: name, Optlen: uint32(len(val))}
		// The address of the value stands where other commands have that of their answer.
		return id.ch.ask(abi.RDMA_USER_CM_CMD_SET_OPTION, uapi.Bytes(&in), 0, val)
	})
}

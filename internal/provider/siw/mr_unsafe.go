package siw

import (
	"unsafe"

	"github.com/pureverbs/rdma/abi"
)

// ContextOut is how many bytes the driver answers when a context is made. It refuses less
// room. What it says is of no use: the device's number.
const ContextOut = int(unsafe.Sizeof(abi.SiwUrespAllocCtx{}))

// MRPlan is the driver's part of registering memory. The kernel refuses to register without.
type MRPlan struct {
	Key  uint8 // low 8 bits of the keys, which the user chooses
	req  abi.SiwUreqRegMr
	resp abi.SiwUrespRegMr
}

// In is the driver's input.
func (p *MRPlan) In() []byte {
	p.req.StagKey = p.Key
	return unsafe.Slice((*byte)(unsafe.Pointer(&p.req)), unsafe.Sizeof(p.req))
}

// Out is the memory for the driver's response.
func (p *MRPlan) Out() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&p.resp)), unsafe.Sizeof(p.resp))
}

// STag is the steering tag that the kernel gave: the local and the remote key.
func (p *MRPlan) STag() uint32 { return p.resp.Stag }

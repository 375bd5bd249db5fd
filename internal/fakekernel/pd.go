//go:build linux

package fakekernel

import "github.com/pureverbs/rdma/abi"

// pd is a protection domain.
type pd struct {
	users int // memory regions and queue pairs
}

func (p *pd) kind() uint16 { return abi.UVERBS_OBJECT_PD }
func (p *pd) inUse() bool  { return p.users > 0 }

func (f *verbsFile) allocPD(resp []byte) (int, error) {
	r := abi.IbUverbsAllocPdResp{PdHandle: f.add(&pd{})}
	return copy(resp, bytesOf(&r)), nil
}

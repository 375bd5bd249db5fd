//go:build linux

package fakekernel

import "github.com/pureverbs/rdma/abi"

// pd is a protection domain.
type pd struct {
	users int // what was made in it
}

func (p *pd) kind() uint16 { return abi.UVERBS_OBJECT_PD }
func (p *pd) busy() error  { return busyIf(p.users > 0) }

func (p *pd) end(*verbsFile) {}

func (f *verbsFile) allocPD(resp []byte) (int, error) {
	r := abi.IbUverbsAllocPdResp{PdHandle: f.add(&pd{})}
	return copy(resp, bytesOf(&r)), nil
}

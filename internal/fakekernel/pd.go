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

func (f *verbsFile) allocPD(resp []byte, u *udata) (int, error) {
	p := new(pd)
	if err := f.dev.drv.newPD(f, p, u); err != nil {
		return 0, err
	}
	r := abi.IbUverbsAllocPdResp{PdHandle: f.add(p)}
	return copy(resp, bytesOf(&r)), nil
}

//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// Flags of REREG_MR: enum ib_mr_rereg_flags.
const (
	reregTranslation = 1
	reregPD          = 2
	reregAccess      = 4
)

// reregMR: ib_uverbs_rereg_mr.
func (f *verbsFile) reregMR(in, resp []byte) (int, error) {
	c := load[abi.IbUverbsReregMr](in)
	switch {
	case c.Flags == 0:
		return 0, unix.EINVAL
	case c.Flags&^(reregTranslation|reregPD|reregAccess) != 0:
		return 0, unix.EOPNOTSUPP
	case c.Flags&reregTranslation != 0 && c.Start%pageSize != c.HcaVa%pageSize:
		return 0, unix.EINVAL
	}
	m, err := lookup[*mr](f, c.MrHandle)
	if err != nil {
		return 0, err
	}
	if c.Flags&reregAccess != 0 {
		if err := f.checkAccess(c.AccessFlags); err != nil {
			return 0, err
		}
	}
	domain := m.pd
	if c.Flags&reregPD != 0 {
		if domain, err = lookup[*pd](f, c.PdHandle); err != nil {
			return 0, err
		}
	}
	if err := f.dev.drv.rereg(f, m, &c, domain); err != nil {
		return 0, err
	}
	m.pd.users--
	domain.users++
	m.pd = domain
	r := abi.IbUverbsReregMrResp{Lkey: m.lkey, Rkey: m.rkey}
	return copy(resp, bytesOf(&r)), nil
}

// rereg is rxe_rereg_user_mr: it can change domain and access, and the keys stay.
func (rxeDriver) rereg(f *verbsFile, m *mr, c *abi.IbUverbsReregMr, _ *pd) error {
	if c.Flags&reregTranslation != 0 {
		return unix.EOPNOTSUPP
	}
	if c.Flags&reregAccess != 0 {
		if c.AccessFlags&writes != 0 && !m.writable {
			return unix.EACCES
		}
		if err := f.rxeAccess(c.AccessFlags); err != nil {
			return err
		}
		m.access = c.AccessFlags
	}
	return nil
}

// adviseMR: without on-demand paging there is nothing to advise on. With it, prefetching
// has no effect that could be seen here.
func (f *verbsFile) adviseMR(r *request) error {
	if f.k.version < v615 || f.dev.Driver != abi.RDMA_DRIVER_RXE {
		return unix.EOPNOTSUPP
	}
	advice := r.number(abi.UVERBS_ATTR_ADVISE_MR_ADVICE)
	switch {
	case r.number(abi.UVERBS_ATTR_ADVISE_MR_FLAGS)&^abi.IB_UVERBS_ADVISE_MR_FLAG_FLUSH != 0:
		return unix.EINVAL
	case advice > abi.IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT:
		return unix.EOPNOTSUPP
	}
	list, err := r.get(abi.UVERBS_ATTR_ADVISE_MR_SGE_LIST).in()
	if err != nil {
		return err
	}
	size := len(bytesOf(&abi.IbUverbsSge{}))
	if len(list)%size != 0 {
		return unix.EINVAL
	}
	for ; len(list) > 0; list = list[size:] {
		e := load[abi.IbUverbsSge](list)
		_, what := f.dev.find(used[*pd](r, abi.UVERBS_ATTR_ADVISE_MR_PD_HANDLE), e.Lkey, e.Addr, e.Length, abi.IB_UVERBS_ACCESS_LOCAL_WRITE)
		switch what {
		case memKey:
			return unix.EINVAL
		case memRange:
			return unix.EFAULT
		}
	}
	return nil
}

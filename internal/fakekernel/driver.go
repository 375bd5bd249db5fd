//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// driver is what one of the kernel's drivers does its own way. The core has checked what
// is the same for all: handles, lengths, and that nothing is in use that ends.
//
// A new... method makes the queues of an object that is complete but for them, and writes
// the driver's answer. What it made is ended by the core if the request fails later.
type driver interface {
	newContext(f *verbsFile, u *udata) error
	newCQ(f *verbsFile, c *cq, cqe uint32, u *udata) (entries uint32, err error) // sets c.ring
	newQP(f *verbsFile, q *qp, u *udata) error                                   // sets q.sq, q.rq; raises q.cap
	newSRQ(f *verbsFile, s *srq, u *udata) error                                 // sets s.rq, s.depth; raises s.maxWR, s.maxSGE
	regMR(f *verbsFile, m *mr, u *udata) error                                   // sets m.lkey, m.rkey

	// has and does tell whether the driver offers what a method or a write command needs.
	has(v version, object, method uint16) bool
	does(v version, cmd uint32) bool
	method(f *verbsFile, r *request) error // one that the core does not have

	newPD(f *verbsFile, p *pd, u *udata) error
	newAH(f *verbsFile, a *ah, c *abi.IbUverbsCreateAh, u *udata) error
	newMW(f *verbsFile, m *mw, u *udata) error                                      // sets m.rkey
	rereg(f *verbsFile, m *mr, c *abi.IbUverbsReregMr, domain *pd) error            // sets what changes
	resizeCQ(f *verbsFile, c *cq, cqe uint32, u *udata) (entries uint32, err error) // changes c.ring

	modifySRQ(f *verbsFile, s *srq, c *abi.IbUverbsModifySrq, u *udata) error
	modify(f *verbsFile, q *qp, c *abi.IbUverbsModifyQp) error
	mayPost(q *qp) error                       // whether the doorbell of send requests is heard
	execute(k *Kernel, q *qp, w *work) verdict // carries one send request out

	mmap(f *verbsFile, off uint64, length, prot int) (*mapping, error)

	attributes(d *device) abi.IbUverbsQueryDeviceResp
	features(d *device, a *abi.IbUverbsExQueryDeviceResp, u *udata) error
	port(d *device) abi.IbUverbsQueryPortRespEx
	link() link
}

// plain is what a driver has that has nothing of its own to do, or does not do it at all.
type plain struct{}

func (plain) method(*verbsFile, *request) error                              { return unix.EPROTONOSUPPORT }
func (plain) newPD(*verbsFile, *pd, *udata) error                            { return nil }
func (plain) newMW(*verbsFile, *mw, *udata) error                            { return unix.EOPNOTSUPP }
func (plain) newAH(*verbsFile, *ah, *abi.IbUverbsCreateAh, *udata) error     { return unix.EOPNOTSUPP }
func (plain) rereg(*verbsFile, *mr, *abi.IbUverbsReregMr, *pd) error         { return unix.EOPNOTSUPP }
func (plain) resizeCQ(*verbsFile, *cq, uint32, *udata) (uint32, error)       { return 0, unix.EOPNOTSUPP }
func (plain) features(*device, *abi.IbUverbsExQueryDeviceResp, *udata) error { return nil }

// mmap is the mapping of a queue: sw/rxe/rxe_mmap.c.
func (plain) mmap(f *verbsFile, off uint64, length, _ int) (*mapping, error) {
	m := f.unmapped[off]
	if m == nil || length <= 0 || length > len(m.user) || m.exact && length != len(m.user) {
		return nil, unix.EINVAL
	}
	delete(f.unmapped, m.offset)
	m.taken = length
	return m, nil
}

// link is what names a device: for netlink, sysfs and the names of new devices.
type link struct {
	name     string // of devices, without their number
	abi      uint32
	nodeType uint8
	protocol string
}

// driverOf returns the driver with a number of enum rdma_driver_id. Tests ask for devices
// of drivers that are not here, to see them refused: these are like rxe.
func driverOf(id uint32) driver {
	switch id {
	case abi.RDMA_DRIVER_SIW:
		return siwDriver{}
	case abi.RDMA_DRIVER_MLX5:
		return mlx5Driver{}
	default:
		return rxeDriver{}
	}
}

// udata is what user and driver tell each other past the core.
type udata struct {
	in   []byte
	room int    // for the answer
	out  []byte // the answer
}

// answer sets the answer, as much of it as there is room for.
func (u *udata) answer(b []byte) { u.out = b[:min(len(b), u.room)] }

// udata reads the driver's part of a request.
func (r *request) udata() (u udata, err error) {
	if a := r.get(abi.UVERBS_ATTR_UHW_IN); a != nil {
		u.in, err = a.in()
	}
	if a := r.get(abi.UVERBS_ATTR_UHW_OUT); a != nil {
		u.room = int(a.raw.Len)
	}
	return u, err
}

// reply writes the driver's answer.
func (r *request) reply(u *udata) error {
	if u.out == nil {
		return nil
	}
	return r.get(abi.UVERBS_ATTR_UHW_OUT).out(u.out)
}

// only says what drivers say that take no input and need room for an answer.
func (u *udata) only(out int) error {
	if len(u.in) > 0 || u.room < out {
		return unix.EINVAL
	}
	return nil
}

//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// Bits of the mask of MODIFY_SRQ: enum ib_srq_attr_mask.
const (
	srqMaxWR = 1
	srqLimit = 2
)

// srq is a shared receive queue.
type srq struct {
	f          *verbsFile
	pd         *pd
	userHandle uint64
	async      *eventFile
	resp       abi.IbUverbsDestroySrqResp
	users      int // queue pairs

	rq            recvQueue
	maxWR, maxSGE uint32 // as answered
	depth         uint32 // as a query tells
	limit         uint32 // an event is due when fewer requests than this are left; 0: no event
}

func (s *srq) kind() uint16 { return abi.UVERBS_OBJECT_SRQ }
func (s *srq) busy() error  { return busyIf(s.users > 0) }

func (s *srq) end(f *verbsFile) {
	s.pd.users--
	s.rq.end(f)
	s.async.forget(s)
}

func (f *verbsFile) createSRQ(r *request) error {
	s := &srq{
		f: f, pd: used[*pd](r, abi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE), async: f.async,
		userHandle: value[uint64](r, abi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE),
		maxWR:      value[uint32](r, abi.UVERBS_ATTR_CREATE_SRQ_MAX_WR),
		maxSGE:     value[uint32](r, abi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE),
		limit:      value[uint32](r, abi.UVERBS_ATTR_CREATE_SRQ_LIMIT),
	}
	if a := r.get(abi.UVERBS_ATTR_CREATE_SRQ_EVENT_FD); a != nil {
		s.async = a.file
	}
	if r.number(abi.UVERBS_ATTR_CREATE_SRQ_TYPE) != abi.IB_UVERBS_SRQT_BASIC { // others want attributes of their own
		return unix.EINVAL
	}
	u, err := r.udata()
	if err != nil {
		return err
	}
	if err := f.dev.drv.newSRQ(f, s, &u); err != nil {
		return err
	}
	if err = r.get(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR).out(bytesOf(&s.maxWR)); err == nil {
		err = r.get(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE).out(bytesOf(&s.maxSGE))
	}
	if err == nil {
		err = r.reply(&u)
	}
	if err != nil {
		s.rq.end(f)
		return err
	}
	s.pd.users++
	*r.get(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE).raw.Data() = uint64(f.add(s))
	return nil
}

func (f *verbsFile) destroySRQ(r *request) error {
	s := used[*srq](r, abi.UVERBS_ATTR_DESTROY_SRQ_HANDLE)
	if err := f.destroy(r, abi.UVERBS_ATTR_DESTROY_SRQ_HANDLE); err != nil {
		return err
	}
	return r.get(abi.UVERBS_ATTR_DESTROY_SRQ_RESP).out(bytesOf(&s.resp))
}

func (f *verbsFile) modifySRQ(in []byte, u *udata) error {
	c := load[abi.IbUverbsModifySrq](in)
	s, err := lookup[*srq](f, c.SrqHandle)
	if err != nil {
		return err
	}
	return f.dev.drv.modifySRQ(f, s, &c, u)
}

func (f *verbsFile) querySRQ(in, resp []byte) (int, error) {
	s, err := lookup[*srq](f, load[abi.IbUverbsQuerySrq](in).SrqHandle)
	if err != nil {
		return 0, err
	}
	r := abi.IbUverbsQuerySrqResp{MaxWr: s.depth, MaxSge: s.maxSGE, SrqLimit: s.limit}
	return copy(resp, bytesOf(&r)), nil
}

// raise queues an asynchronous event of the shared receive queue.
func (s *srq) raise(typ uint32) {
	if s.async != nil {
		s.async.push(event{
			async:   abi.IbUverbsAsyncEventDesc{Element: s.userHandle, EventType: typ},
			counter: &s.resp.EventsReported, owner: s,
		})
	}
}

//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// cq is a completion queue.
type cq struct {
	f          *verbsFile
	userHandle uint64
	ring       cqRing
	channel    *eventFile
	async      *eventFile
	users      int // queue pairs
	flags      uint32
	uarIndex   *uint32 // of mlx5: the page of registers, if the request names one
	resp       abi.IbUverbsDestroyCqResp
}

func (c *cq) kind() uint16 { return abi.UVERBS_OBJECT_CQ }
func (c *cq) busy() error  { return busyIf(c.users > 0) }

func (c *cq) end(f *verbsFile) {
	c.ring.end(f)
	c.channel.forget(c)
	c.async.forget(c)
}

func (f *verbsFile) createCQ(r *request) error {
	cqe := value[uint32](r, abi.UVERBS_ATTR_CREATE_CQ_CQE)
	flags := r.number(abi.UVERBS_ATTR_CREATE_CQ_FLAGS)
	if err := f.checkCQ(cqe, flags, value[uint32](r, abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR)); err != nil {
		return err
	}
	u, err := r.udata()
	if err != nil {
		return err
	}
	c := &cq{f: f, userHandle: value[uint64](r, abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE), async: f.async, flags: uint32(flags)}
	if a := r.get(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL); a != nil {
		c.channel = a.file
	}
	if a := r.get(abi.UVERBS_ATTR_CREATE_CQ_EVENT_FD); a != nil {
		c.async = a.file
	}
	if r.get(abi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX) != nil {
		c.uarIndex = ptr(value[uint32](r, abi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX))
	}
	entries, err := f.dev.drv.newCQ(f, c, cqe, &u)
	if err != nil {
		return err
	}
	if err = r.get(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE).out(bytesOf(&entries)); err == nil {
		err = r.reply(&u)
	}
	if err != nil {
		c.ring.end(f)
		return err
	}
	*r.get(abi.UVERBS_ATTR_CREATE_CQ_HANDLE).raw.Data() = uint64(f.add(c))
	return nil
}

// checkCQ: the software drivers have no flags and no empty queues. The word is theirs, but
// none of them looks at anything before.
func (f *verbsFile) checkCQ(cqe uint32, flags uint64, vector uint32) error {
	const known = abi.IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | abi.IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN
	hardware := f.dev.Driver == abi.RDMA_DRIVER_MLX5
	switch {
	case flags != 0 && !hardware:
		return unix.EOPNOTSUPP
	case flags&^known != 0, cqe == 0 && !hardware, vector != 0:
		return unix.EINVAL
	}
	return nil
}

func (f *verbsFile) destroyCQ(r *request) error {
	c := used[*cq](r, abi.UVERBS_ATTR_DESTROY_CQ_HANDLE)
	if err := f.destroy(r, abi.UVERBS_ATTR_DESTROY_CQ_HANDLE); err != nil {
		return err
	}
	return r.get(abi.UVERBS_ATTR_DESTROY_CQ_RESP).out(bytesOf(&c.resp))
}

func (f *verbsFile) createCompChannel(resp []byte) (int, error) {
	e, err := f.newEventFile(true)
	if err != nil {
		return 0, err
	}
	r := abi.IbUverbsCreateCompChannelResp{Fd: uint32(e.fd)}
	return copy(resp, bytesOf(&r)), nil
}

// reqNotify arms the queue for the next completion.
func (f *verbsFile) reqNotify(in []byte) error {
	cmd := load[abi.IbUverbsReqNotifyCq](in)
	c, err := lookup[*cq](f, cmd.CqHandle)
	if err != nil {
		return err
	}
	return c.ring.arm(cmd.SolicitedOnly != 0)
}

// post adds a completion, and raises an event if one is waited for.
func (c *cq) post(wc *abi.IbUverbsWc, solicited bool) {
	if !c.ring.post(wc) {
		c.overflow()
		return
	}
	if c.ring.fires(solicited) {
		c.notify()
	}
}

// notify raises an event.
func (c *cq) notify() {
	if c.channel != nil {
		c.channel.push(event{
			comp: true, async: abi.IbUverbsAsyncEventDesc{Element: c.userHandle},
			counter: &c.resp.CompEventsReported, owner: c,
		})
	}
}

// overflow drops the completion and says so.
func (c *cq) overflow() {
	if c.async != nil {
		c.async.push(event{
			async:   abi.IbUverbsAsyncEventDesc{Element: c.userHandle, EventType: asyncCQError},
			counter: &c.resp.AsyncEventsReported, owner: c,
		})
	}
}

//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/mmio"
)

// When a completion queue raises an event.
const (
	notArmed = iota
	armedSolicited
	armedAny
)

// cq is a completion queue.
type cq struct {
	f          *verbsFile
	userHandle uint64
	ring       *queue
	channel    *eventFile
	async      *eventFile
	armed      uint8
	users      int // queue pairs
	resp       abi.IbUverbsDestroyCqResp
}

func (c *cq) kind() uint16 { return abi.UVERBS_OBJECT_CQ }
func (c *cq) inUse() bool  { return c.users > 0 }

func (c *cq) end(f *verbsFile) {
	c.ring.end(f)
	c.channel.forget(c)
	c.async.forget(c)
}

func (f *verbsFile) createCQ(r *request) error {
	cqe := value[uint32](r, abi.UVERBS_ATTR_CREATE_CQ_CQE)
	switch {
	case r.number(abi.UVERBS_ATTR_CREATE_CQ_FLAGS) != 0:
		return unix.EOPNOTSUPP
	case cqe == 0 || cqe > maxCQE || value[uint32](r, abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR) != 0:
		return unix.EINVAL
	}
	uhw, err := driverOut(r, len(bytesOf(&abi.RxeCreateCqResp{})))
	if err != nil {
		return err
	}
	c := &cq{f: f, userHandle: value[uint64](r, abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE), async: f.async}
	if a := r.get(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL); a != nil {
		c.channel = a.file
	}
	if a := r.get(abi.UVERBS_ATTR_CREATE_CQ_EVENT_FD); a != nil {
		c.async = a.file
	}
	if c.ring, err = f.newQueue(cqe, len(bytesOf(&abi.IbUverbsWc{}))); err != nil {
		return err
	}
	slots, mi := c.ring.slots(), abi.RxeCreateCqResp{Mi: c.ring.info()}
	if err = r.get(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE).out(bytesOf(&slots)); err == nil {
		err = uhw.out(bytesOf(&mi))
	}
	if err != nil {
		c.ring.end(f)
		return err
	}
	*r.get(abi.UVERBS_ATTR_CREATE_CQ_HANDLE).raw.Data() = uint64(f.add(c))
	return nil
}

// driverOut is the room for the driver's answer; rxe takes no input and refuses too small
// a room.
func driverOut(r *request, size int) (*attr, error) {
	out := r.get(abi.UVERBS_ATTR_UHW_OUT)
	if r.get(abi.UVERBS_ATTR_UHW_IN) != nil || out == nil || int(out.raw.Len) < size {
		return nil, unix.EINVAL
	}
	return out, nil
}

func (f *verbsFile) destroyCQ(r *request) error {
	c := used[*cq](r, abi.UVERBS_ATTR_DESTROY_CQ_HANDLE)
	if err := f.destroy(r, abi.UVERBS_ATTR_DESTROY_CQ_HANDLE); err != nil {
		return err
	}
	return r.get(abi.UVERBS_ATTR_DESTROY_CQ_RESP).out(bytesOf(&c.resp))
}

func (f *verbsFile) createCompChannel(resp []byte) (int, error) {
	r := abi.IbUverbsCreateCompChannelResp{Fd: uint32(f.newEventFile(true).fd)}
	return copy(resp, bytesOf(&r)), nil
}

// reqNotify arms the queue for the next completion. There is no event for completions
// that are there already.
func (f *verbsFile) reqNotify(in []byte) error {
	cmd := load[abi.IbUverbsReqNotifyCq](in)
	c, err := lookup[*cq](f, cmd.CqHandle)
	if err != nil {
		return err
	}
	switch {
	case cmd.SolicitedOnly == 0:
		c.armed = armedAny
	case c.armed != armedAny: // a stronger wish stays
		c.armed = armedSolicited
	}
	return nil
}

// post adds a completion: sw/rxe/rxe_cq.c, rxe_cq_post.
func (c *cq) post(wc *abi.IbUverbsWc, solicited bool) {
	next := mmio.Next(c.ring.own, c.ring.mask)
	if next == mmio.LoadAcquire32(c.ring.consumer)&c.ring.mask {
		c.overflow()
		return
	}
	copy(c.ring.slot(c.ring.own), bytesOf(wc))
	c.ring.own = next
	mmio.StoreRelease32(c.ring.producer, next)
	if c.armed == armedAny || c.armed == armedSolicited && solicited {
		c.armed = notArmed
		if c.channel != nil {
			c.channel.push(event{
				comp: true, async: abi.IbUverbsAsyncEventDesc{Element: c.userHandle},
				counter: &c.resp.CompEventsReported, owner: c,
			})
		}
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

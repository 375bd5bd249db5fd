package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/pureverbs/rdma/tests/pingpong/peer"
	"github.com/pureverbs/rdma/uverbs"
)

// end is this side of the test: its queue pair and what it needs.
type end struct {
	options
	t      *test
	mtu    uverbs.MTU
	qp     *uverbs.QP
	sendCQ *uverbs.CQ
	recvCQ *uverbs.CQ
	mr     *uverbs.MR // what this side sends, then what the peer sends or has access to
	owned  peer.Owned
	me     dest
	peer   dest
	to     uverbs.Dest // the peer, for datagrams
	seen   seen        // of what comes from the peer
	wcs    [1]uverbs.WC
}

func (e *end) client() bool { return e.server != "" }

func (e *end) typ() uverbs.QPType { return transports[e.transport] }

// grh is what the device writes before a message.
func (e *end) grh() int {
	if e.typ() == uverbs.QPTypeUD {
		return uverbs.GRHSize
	}
	return 0
}

// depth is how many receives are posted, as many as the C programs'.
func (e *end) depth() int {
	if e.test != "send" {
		return 1
	}
	return min(e.iters, 512)
}

func (e *end) caps() uverbs.QPCap {
	return uverbs.QPCap{MaxSendWR: 1, MaxRecvWR: uint32(e.depth()), MaxSendSGE: 1, MaxRecvSGE: 1}
}

// slot is the room for a message in each direction.
func (e *end) slot() int { return (e.grh() + e.size + 4095) &^ 4095 }

// own returns where this side's message is, theirs where the peer's goes.
func (e *end) own() []byte    { return e.mr.Bytes()[:e.size] }
func (e *end) theirs() []byte { return e.mr.Bytes()[e.slot()+e.grh():][:e.size] }

// accessOn is what the memory has to allow. On iWARP a READ comes back as a write.
func (e *end) accessOn(c *uverbs.Context) uverbs.AccessFlags {
	if e.test == "read" && c.Device().Protocol() == "iw" {
		return e.t.access | uverbs.AccessRemoteWrite
	}
	return e.t.access
}

// describe fills in what the peer has to know. The queue pair is there, and the memory.
func (e *end) describe(gid uverbs.GID) {
	e.me = dest{
		outReads: 1, qpn: e.qp.Num(), psn: rand.Uint32() & 0xffffff,
		rkey: e.mr.RKey(), vaddr: e.mr.Addr() + uint64(e.slot()), gid: gid,
	}
}

// introduce exchanges addresses and connects. When it returns both sides are ready. The C
// programs exchange them four times, and connect before the second or the third.
func (e *end) introduce(ctx context.Context, h handshake) (err error) {
	if e.peer, err = h.swap(ctx, e.me); err != nil {
		return err
	}
	if err := e.peer.check(e.t, e.options, e.me.gid); err != nil {
		return err
	}
	if e.typ() == uverbs.QPTypeUD && e.size > e.mtu.Bytes() {
		return fmt.Errorf("%d bytes do not fit into a datagram, the MTU is %d", e.size, e.mtu.Bytes())
	}
	if err := h.connect(e); err != nil {
		return err
	}
	for range 2 {
		if err := h.step(ctx, e.me, e.peer); err != nil {
			return err
		}
	}
	if err := e.t.prepare(e); err != nil {
		return err
	}
	return h.step(ctx, e.me, e.peer)
}

// part ends the test: the peer has not left yet, and must not lose its last message.
func (e *end) part(ctx context.Context, h handshake) error {
	if e.t.ends {
		if err := h.step(ctx, e.me, e.peer); err != nil {
			return err
		}
	}
	return errors.Join(h.farewell(ctx, e.t.ends), e.t.verify(e))
}

// post posts one send work request on what this side sends, and waits until it is done.
func (e *end) post(ctx context.Context, wr uverbs.SendWR) error {
	wr.Flags = uverbs.SendSignaled
	wr.SGL = []uverbs.SGE{e.mr.SGE(0, e.size)}
	wr.RemoteAddr, wr.RKey = e.peer.vaddr, e.peer.rkey
	if e.typ() == uverbs.QPTypeUD {
		wr.Dest = e.to
	}
	if _, err := e.qp.PostSend([]uverbs.SendWR{wr}); err != nil {
		return err
	}
	_, err := e.completion(ctx, e.sendCQ)
	return err
}

func (e *end) postRecvs(n int) error {
	wrs := make([]uverbs.RecvWR, n)
	for i := range wrs {
		wrs[i].SGL = []uverbs.SGE{e.mr.SGE(e.slot(), e.grh()+e.size)}
	}
	_, err := e.qp.PostRecv(wrs)
	return err
}

func (e *end) completion(ctx context.Context, cq *uverbs.CQ) (*uverbs.WC, error) {
	if _, err := peer.Completions(ctx, cq, e.wcs[:], e.events); err != nil {
		return nil, err
	}
	return &e.wcs[0], e.wcs[0].Err()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// perfLane is one queue pair of a run, with a protection domain, memory and queues of its
// own. One goroutine works on it.
type perfLane struct {
	plan    *perfPlan
	index   int
	serving bool // this is the server's end
	timeout time.Duration

	pd    *uverbs.PD
	ch    *uverbs.CompChannel
	cq    *uverbs.CQ // of both queues
	out   *uverbs.MR // what is sent, or comes from the peer's memory: nobody else may name it
	in    *uverbs.MR // what comes, or what the peer works on
	qp    *uverbs.QP
	conn  *rdmacm.Conn // nil if the queue pair was connected by hand
	ah    *uverbs.AH
	me    perfLaneBody
	peer  perfLaneBody
	dest  uverbs.Dest
	wait  waiter
	posts perfPosts

	want    []byte // what messages of this round have to hold, if that is checked
	corrupt bool   // they did not

	posted int           // receives
	done   atomic.Uint64 // messages of this round that count, for who watches
	came   atomic.Uint64 // messages of this round that came
	gone   atomic.Uint64 // messages of this round that were sent, once all are
}

// perfPosts are work requests that are used again and again.
type perfPosts struct {
	send    []uverbs.SendWR
	sendSGE [1]uverbs.SGE
	credit  [1]uverbs.SendWR
	recv    [1]uverbs.RecvWR
	recvSGE [1]uverbs.SGE
}

// What a work request is, in the upper bits of its number; the lower ones are how many
// messages its completion stands for.
const (
	perfIDRecv   = 1 << 32
	perfIDCredit = 1 << 33
	perfIDCount  = perfIDRecv - 1
)

// make makes all but the queue pair.
func (l *perfLane) make(c *uverbs.Context, w *waiting) (err error) {
	if l.pd, err = c.AllocPD(); err != nil {
		return err
	}
	if l.ch, err = w.channel(c); err != nil {
		return err
	}
	if l.cq, err = c.CreateCQ(l.plan.sends()+l.plan.receives(), l.ch); err != nil {
		return err
	}
	iw := c.Device().Protocol() == "iw"
	out, in := uverbs.AccessLocalWrite, uverbs.AccessLocalWrite
	if iw && l.plan.op == perfRead {
		out |= uverbs.AccessRemoteWrite // on iWARP what is read comes back as a write
	}
	if l.grants() {
		in |= l.plan.op.remote()
	}
	if l.out, err = l.pd.AllocMR(l.plan.size, out); err != nil {
		return err
	}
	if l.in, err = l.pd.AllocMR((l.plan.grh()+l.plan.size+7)&^7, in); err != nil { // whole words, see awaitByte
		return err
	}
	l.wait = waiter{cq: l.cq, spin: w.poll}
	l.posts.send = make([]uverbs.SendWR, l.plan.batch)
	l.posts.credit[0] = uverbs.SendWR{ID: perfIDCredit, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled}
	l.posts.recvSGE[0] = l.in.SGE(0, l.in.Len())
	l.posts.recv[0] = uverbs.RecvWR{ID: perfIDRecv, SGL: l.posts.recvSGE[:]}
	return nil
}

// grants tells whether the peer works on the memory of this side.
func (l *perfLane) grants() bool { return l.plan.op != perfSend && (l.serving || l.plan.mutual()) }

// close gives everything back, what was not made not.
func (l *perfLane) close() error {
	var err error
	if l.conn != nil {
		l.conn.Disconnect() // if the peer was first there is nothing to say
		err = l.conn.Close()
	} else if l.qp != nil {
		err = l.qp.Close()
	}
	for _, o := range []struct {
		made  bool
		close func() error
	}{
		{l.ah != nil, l.ah.Close}, {l.in != nil, l.in.Close}, {l.out != nil, l.out.Close},
		{l.cq != nil, l.cq.Close}, {l.ch != nil, l.ch.Close}, {l.pd != nil, l.pd.Close},
	} {
		if o.made {
			err = errors.Join(err, o.close())
		}
	}
	return err
}

// options are those of a connection of rdma_cm.
func (l *perfLane) options(private []byte) *rdmacm.Options {
	return &rdmacm.Options{
		PD: l.pd, SendCQ: l.cq, RecvCQ: l.cq, QP: l.plan.caps(),
		ConnParam: rdmacm.ConnParam{PrivateData: private, RetryCount: 7, RNRRetryCount: 7},
		Prepare:   func(c *rdmacm.Conn) error { l.qp = c.QP(); return l.fill() },
	}
}

// connected takes over a connection of rdma_cm.
func (l *perfLane) connected(c *rdmacm.Conn, err error) error {
	l.conn = c
	if err != nil {
		l.qp, l.posted = nil, 0 // closed already
	}
	return err
}

func (l *perfLane) dial(ctx context.Context, addr, source netip.AddrPort, private []byte, opts []rdmacm.Option) error {
	o := l.options(private)
	o.Source, o.System = source, opts
	return l.connected(rdmacm.Dial(ctx, addr.String(), o))
}

func (l *perfLane) accept(ctx context.Context, req *rdmacm.Request) error {
	return l.connected(req.Accept(ctx, l.options(nil)))
}

// greet exchanges an empty message each way over a connection of rdma_cm, the client's
// first: on iWARP the server must not begin, and siw may not hear the first message.
func (l *perfLane) greet(ctx context.Context) error {
	ctx, stop := follow(ctx, l.conn)
	defer stop()
	if !l.serving {
		defer (&link{conn: l.conn}).remind()()
		if err := l.postCredit(); err != nil {
			return err
		}
	}
	for sent, heard := false, false; !sent || !heard; {
		wcs, _, err := l.wait.wait(ctx)
		if err != nil {
			return err
		}
		for i := range wcs {
			switch wc := &wcs[i]; {
			case wc.Status != uverbs.WCSuccess:
				return perfFailed(wc)
			case wc.ID == perfIDCredit:
				sent = true
			case wc.ID == perfIDRecv:
				l.posted--
				if heard = true; l.serving {
					if err := l.postCredit(); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// describe says what the peer has to know.
func (l *perfLane) describe(way *perfWay) perfLaneBody {
	l.me = perfLaneBody{Index: uint16(l.index), QPN: l.qp.Num(), PSN: rand.Uint32() & 0xffffff, QKey: rand.Uint32() >> 1}
	if l.grants() {
		l.me.RKey, l.me.Addr, l.me.Length = l.in.RKey(), l.in.Addr(), uint32(l.in.Len())
	}
	if way != nil {
		l.me.LID, l.me.MTU, l.me.Reads, l.me.GID = way.lid, uint8(way.mtu), way.reads, way.gid.GID
	}
	return l.me
}

// meet takes what the peer says of its end, and believes none of it.
func (l *perfLane) meet(peer perfLaneBody) error {
	needs := l.plan.op != perfSend && (!l.serving || l.plan.mutual())
	switch {
	case int(peer.Index) != l.index:
		return fmt.Errorf("queue pair %d was described, want %d", peer.Index, l.index)
	case peer.QPN > 0xffffff || peer.PSN > 0xffffff:
		return fmt.Errorf("queue pair number %#x, first packet %#x: each has 24 bits", peer.QPN, peer.PSN)
	case needs && int64(peer.Length) < int64(l.plan.size):
		return fmt.Errorf("the peer has %d bytes of memory, agreed were %d", peer.Length, l.plan.size)
	case needs && (peer.Addr > ^uint64(0)-uint64(peer.Length) || l.plan.op == perfAtomic && peer.Addr%8 != 0):
		return fmt.Errorf("the peer's memory is at %#x, where it cannot be", peer.Addr)
	}
	l.peer = peer
	return nil
}

// fill posts receives until as many as planned are there.
func (l *perfLane) fill() error {
	for l.posted < l.plan.receives() {
		if _, err := l.qp.PostRecv(l.posts.recv[:]); err != nil {
			return fmt.Errorf("post receive, %d of %d are there: %w", l.posted, l.plan.receives(), err)
		}
		l.posted++
	}
	return nil
}

func (l *perfLane) postCredit() error {
	l.posts.credit[0].Dest = l.dest
	_, err := l.qp.PostSend(l.posts.credit[:])
	return err
}

// post posts n messages of size bytes with one doorbell; the last of them reports for all.
func (l *perfLane) post(n, size int) error {
	wrs := l.posts.send[:n]
	l.posts.sendSGE[0] = l.out.SGE(0, size)
	for i := range wrs {
		wrs[i] = uverbs.SendWR{
			Opcode: l.plan.op.opcode(), SGL: l.posts.sendSGE[:], Dest: l.dest,
			RemoteAddr: l.peer.Addr, RKey: l.peer.RKey, CompareAdd: 1,
		}
	}
	wrs[n-1].ID, wrs[n-1].Flags = uint64(n), uverbs.SendSignaled
	if _, err := l.qp.PostSend(wrs); err != nil {
		return fmt.Errorf("post %d of %d bytes: %w", n, size, err)
	}
	return nil
}

func (o perfOp) opcode() uverbs.Opcode {
	switch o {
	case perfWrite:
		return uverbs.OpRDMAWrite
	case perfRead:
		return uverbs.OpRDMARead
	case perfAtomic:
		return uverbs.OpFetchAdd
	}
	return uverbs.OpSend
}

// data is where a message of size bytes comes in.
func (l *perfLane) data(size int) []byte {
	grh := l.plan.grh()
	return l.in.Bytes()[grh : grh+size : grh+size]
}

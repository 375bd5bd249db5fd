//go:build linux

package verbstest

import (
	"errors"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// side is one end of a connection within one process.
type side struct {
	*host
	qp *uverbs.QP
}

// shape is how a queue pair is wanted; the zero value is a reliable connection with
// some room on the host's completion queue.
type shape = uverbs.QPInitAttr

// limits is a queue pair with some of everything.
func (u *Suite) limits(t testing.TB) uverbs.QPCap {
	c := uverbs.QPCap{MaxSendWR: 32, MaxRecvWR: 32, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 128}
	if !u.has(t, byHand) {
		c.MaxInline = 64
	}
	return c
}

// complete fills in what is not said.
func (h *host) complete(t testing.TB, s shape) *uverbs.QPInitAttr {
	if s.SendCQ == nil {
		s.SendCQ = h.cq
	}
	if s.Cap == (uverbs.QPCap{}) {
		s.Cap = h.u.limits(t)
	}
	return &s
}

// pair is two hosts with a reliable connection between them.
func (u *Suite) pair(t testing.TB, size int) (a, b *side) {
	t.Helper()
	return u.link(t, u.newHost(t, size), u.newHost(t, size), shape{}, shape{})
}

// pairOf is two hosts with a connection of a type.
func (u *Suite) pairOf(t testing.TB, typ uverbs.QPType, size int) (a, b *side) {
	t.Helper()
	return u.link(t, u.newHost(t, size), u.newHost(t, size), shape{Type: typ}, shape{Type: typ})
}

// link makes a queue pair on each host and connects them: by hand, or where the device
// cannot by the connection manager. Both live as long as the test, unless closed before.
func (u *Suite) link(t testing.TB, ha, hb *host, sa, sb shape) (a, b *side) {
	t.Helper()
	if !u.byHand(t) {
		return u.dial(t, ha, hb, sa, sb)
	}
	a, b = ha.make(t, sa), hb.make(t, sb)
	if sa.Type == uverbs.QPTypeUD {
		a.toDatagrams(t, qkey)
		b.toDatagrams(t, qkey)
		return a, b
	}
	a.connect(t, b)
	b.connect(t, a)
	return a, b
}

// make makes a queue pair that is connected to nothing.
func (h *host) make(t testing.TB, s shape) *side {
	t.Helper()
	qp, err := h.pd.CreateQP(h.complete(t, s))
	testutil.Must(t, err)
	t.Cleanup(func() { closeAll(t, qp) })
	return &side{h, qp}
}

func (s *side) typ() uverbs.QPType { return s.qp.Type() }

const (
	toInit   = uverbs.QPAttrState | uverbs.QPAttrPKeyIndex | uverbs.QPAttrPort | uverbs.QPAttrAccessFlags
	toInitUD = uverbs.QPAttrState | uverbs.QPAttrPKeyIndex | uverbs.QPAttrPort | uverbs.QPAttrQKey
	toRTRUC  = uverbs.QPAttrState | uverbs.QPAttrAV | uverbs.QPAttrPathMTU | uverbs.QPAttrDestQPN | uverbs.QPAttrRQPSN
	toRTRRC  = toRTRUC | uverbs.QPAttrMaxDestRDAtomic | uverbs.QPAttrMinRNRTimer
	toRTSUC  = uverbs.QPAttrState | uverbs.QPAttrSQPSN
	toRTSRC  = toRTSUC | uverbs.QPAttrTimeout | uverbs.QPAttrRetryCnt | uverbs.QPAttrRNRRetry | uverbs.QPAttrMaxQPRDAtomic
)

// init brings the queue pair to INIT, where receives may be posted.
func (s *side) init(t testing.TB) {
	t.Helper()
	access := s.u.access(t) &^ uverbs.AccessMWBind
	if s.u.has(t, flushing) {
		access |= uverbs.AccessFlushGlobal
	}
	testutil.Must(t, s.qp.Modify(&uverbs.QPAttr{State: uverbs.StateInit, PortNum: 1, AccessFlags: access}, toInit))
}

// connect brings the queue pair to RTS towards peer; both sit behind the same port.
func (s *side) connect(t testing.TB, peer *side) {
	t.Helper()
	s.init(t)
	s.ready(t, peer, uverbs.DefaultMinRNRTimer, 14)
}

// ready goes on from INIT.
func (s *side) ready(t testing.TB, peer *side, rnrTimer, timeout uint8) {
	t.Helper()
	port, err := s.ctx.QueryPort(1)
	testutil.Must(t, err)
	rtr, rts := toRTRRC, toRTSRC
	if s.typ() == uverbs.QPTypeUC {
		rtr, rts = toRTRUC, toRTSUC
	}
	testutil.Must(t, s.qp.Modify(&uverbs.QPAttr{
		State: uverbs.StateRTR, PathMTU: port.ActiveMTU, DestQPNum: peer.qp.Num(), MaxDestRDAtomic: 4,
		MinRNRTimer: rnrTimer, AH: s.way(t, peer.host),
	}, rtr))
	testutil.Must(t, s.qp.Modify(&uverbs.QPAttr{
		State: uverbs.StateRTS, Timeout: timeout, RetryCnt: retries, RNRRetry: 7, MaxRDAtomic: 4,
	}, rts))
}

// retries is a number that ends: with 7 rxe goes on for ever.
const retries = 6

// way is how the host reaches another one.
func (h *host) way(t testing.TB, peer *host) uverbs.AHAttr {
	t.Helper()
	return uverbs.AHAttr{
		DGID: peer.routable(t).GID, SGIDIndex: uint8(h.routable(t).Index), IsGlobal: true, HopLimit: 64, PortNum: 1,
	}
}

// routable is the GID of the suite's address.
func (h *host) routable(t testing.TB) uverbs.GIDEntry {
	t.Helper()
	table, err := h.ctx.GIDTable()
	testutil.Must(t, err)
	e, err := uverbs.FindGID(table, 1, h.u.Addr)
	testutil.Must(t, err)
	return e
}

// send posts one work request, which must be taken.
func (s *side) send(t testing.TB, wr uverbs.SendWR) {
	t.Helper()
	n, err := s.qp.PostSend([]uverbs.SendWR{wr})
	testutil.Must(t, err)
	if n != 1 {
		t.Fatalf("posted %d requests, want 1", n)
	}
}

// recv posts one receive of n bytes at off of the host's memory.
func (s *side) recv(t testing.TB, id uint64, off, n int) {
	t.Helper()
	_, err := s.qp.PostRecv([]uverbs.RecvWR{{ID: id, SGL: []uverbs.SGE{s.mr.SGE(off, n)}}})
	testutil.Must(t, err)
}

// recvWhenRoom does so as soon as the queue has room, while another goroutine polls.
func (s *side) recvWhenRoom(t testing.TB, id uint64, n int) {
	t.Helper()
	waitFor(t, "room for a receive", func() bool {
		_, err := s.qp.PostRecv([]uverbs.RecvWR{{ID: id, SGL: []uverbs.SGE{s.mr.SGE(0, n)}}})
		if !errors.Is(err, uverbs.ErrQueueFull) {
			testutil.Must(t, err)
		}
		return err == nil
	})
}

// remote aims a work request at the peer's memory.
func (s *side) remote(wr uverbs.SendWR, peer *side) uverbs.SendWR {
	wr.RemoteAddr, wr.RKey = peer.mr.Addr(), peer.mr.RKey()
	return wr
}

// works shows that a connection carries messages both ways.
func works(t testing.TB, a, b *side) {
	t.Helper()
	for _, way := range [][2]*side{{a, b}, {b, a}} {
		from, to := way[0], way[1]
		testutil.Fill(from.mr.Bytes()[:100], uint64(from.qp.Num()))
		to.recv(t, 901, 0, 100)
		from.send(t, uverbs.SendWR{
			ID: 902, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{from.mr.SGE(0, 100)},
		})
		from.ok(t, 902, uverbs.WCSend)
		to.ok(t, 901, uverbs.WCRecv)
		if string(from.mr.Bytes()[:100]) != string(to.mr.Bytes()[:100]) {
			t.Error("the message changed on the way")
		}
	}
}

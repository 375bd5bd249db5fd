//go:build linux

package fakekernel

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// srq makes a shared receive queue of n entries, of which one is never posted. The entries
// are linked so that the order is not that of memory.
func (d *mlxDev) srq(n uint32) *mlxSRQ {
	d.t.Helper()
	s := &mlxSRQ{d: d, n: n, stride: 64, rec: d.record()}
	s.buf = pages(d.t, 4096)
	for i := range n {
		be.PutUint16(s.buf[i*s.stride+srqLink:], uint16((i+3)%n))
	}
	var wr, sge uint32
	in, out := s.request(), abi.Mlx5IbCreateSrqResp{}
	c := mlx5CreateSRQ(d.pd, n-1, 3, 5, &wr, &sge, bytesOf(&in), bytesOf(&out))
	must(d.t, c.Do(d.f))
	if wr != n-1 || sge != 3 {
		d.t.Errorf("shared queue of %d requests of %d pieces, want %d of 3", wr, sge, n-1)
	}
	s.handle, s.num = c.Result(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE), out.Srqn
	return s
}

func (s *mlxSRQ) request() abi.Mlx5IbCreateSrq {
	return abi.Mlx5IbCreateSrq{BufAddr: uapi.Addr(s.buf), DbAddr: uapi.Addr(s.rec)}
}

func mlx5CreateSRQ(pd, maxWR, maxSGE, limit uint32, wr, sge *uint32, in, out []byte) *uapi.Command {
	return mlx5cmd(uapi.SRQCreate).
		New(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE).
		Use(abi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, pd).
		Const(abi.UVERBS_ATTR_CREATE_SRQ_TYPE, abi.IB_UVERBS_SRQT_BASIC).
		In64(abi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, 0xcafe).
		In32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_WR, maxWR).
		In32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE, maxSGE).
		In32(abi.UVERBS_ATTR_CREATE_SRQ_LIMIT, limit).
		Out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, bytesOf(wr)).
		Out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, bytesOf(sge)).
		Driver(in, out)
}

// post adds a request and returns the number of its entry.
func (s *mlxSRQ) post(list []byte) uint16 {
	i := s.head
	e := s.buf[i*s.stride:][:s.stride]
	n := segment + copy(e[segment:], list)
	copy(e[n:], dataSegment(0, terminateKey, 0))
	s.head = uint32(be.Uint16(e[srqLink:]))
	s.count++
	put32(s.rec, s.count)
	return uint16(i)
}

func (s *mlxSRQ) limit(n uint32) error {
	in := abi.IbUverbsModifySrq{SrqHandle: s.handle, AttrMask: srqLimit, SrqLimit: n}
	return s.d.invoke(uapi.ModifySRQ, bytesOf(&in), nil, nil, nil)
}

func (s *mlxSRQ) query() (r abi.IbUverbsQuerySrqResp) {
	must(s.d.t, s.d.invoke(uapi.QuerySRQ, bytesOf(&abi.IbUverbsQuerySrq{SrqHandle: s.handle}), bytesOf(&r), nil, nil))
	return r
}

// TestMLX5SharedReceives: two queue pairs take from one queue, in the order of its links.
func TestMLX5SharedReceives(t *testing.T) {
	for _, version0 := range []bool{false, true} {
		k := mlx5Kernel(t, "", MLX5{CQEVersion0: version0})
		d, e := openMLX5(t, k), openMLX5(t, k)
		s := e.srq(8)
		a1, a2, b1, b2 := d.qp(), d.qp(), (&mlxQP{d: e, srq: s}).create(), (&mlxQP{d: e, srq: s}).create()
		mlx5Connect(t, a1, b1, 7)
		mlx5Connect(t, a2, b2, 7)
		var posted, taken []uint16
		for i := range 20 {
			posted = append(posted, s.post(b1.mr.sge(i*8, 8)))
			a, b := a1, b1
			if i%3 == 0 {
				a, b = a2, b2
			}
			copy(a.mr.mem, []byte{byte(i + 1)})
			a.do(mlx5Send, 0, a.mr.sge(0, 8))
			c := b.recv.one()
			taken = append(taken, c.counter())
			index := b.uidx
			if version0 {
				index = s.num
			}
			if c.opcode() != cqeRecvSend || c.qpn() != b.num || c.index() != index || b1.mr.mem[i*8] != byte(i+1) {
				t.Errorf("receive %d: opcode %d of %#x, index %#x (want %#x), data %d", i, c.opcode(), c.qpn(), c.index(), index, b1.mr.mem[i*8])
			}
		}
		if d := cmp.Diff(posted, taken); d != "" {
			t.Errorf("entries (-posted +taken):\n%s", d)
		}
	}
}

// TestMLX5SharedEmpty: there is none, and then there is one.
func TestMLX5SharedEmpty(t *testing.T) {
	k := mlx5Kernel(t, "", MLX5{})
	d, e := openMLX5(t, k), openMLX5(t, k)
	s := e.srq(4)
	a, b := d.qp(), (&mlxQP{d: e, srq: s}).create()
	mlx5Connect(t, a, b, 7)
	a.post(mlx5Send, wqeCompletion, 0, a.mr.sge(0, 8))
	a.send.none("before there is a receive")
	s.post(b.mr.sge(0, 8))
	wantCQE(t, "send", a.send.one(), cqeRequest, 0, 0)
}

// TestMLX5SharedLimit: the event comes once, when fewer are left than the limit says.
func TestMLX5SharedLimit(t *testing.T) {
	k := mlx5Kernel(t, "", MLX5{})
	d, e := openMLX5(t, k), openMLX5(t, k)
	s := e.srq(8)
	a, b := d.qp(), (&mlxQP{d: e, srq: s}).create()
	mlx5Connect(t, a, b, 7)
	for range 4 {
		s.post(b.mr.sge(0, 8))
	}
	want(t, "limit as large as the queue", s.limit(8), 22)
	must(t, s.limit(3))
	if got := s.query(); got.SrqLimit != 3 || got.MaxWr != 7 || got.MaxSge != 3 {
		t.Errorf("query: %+v, want a limit of 3, 7 requests of 3 pieces", got)
	}
	a.do(mlx5Send, 0, a.mr.sge(0, 8))
	if got := e.asyncEvent(3 * time.Millisecond); got != -1 {
		t.Errorf("event %d at the limit", got)
	}
	a.do(mlx5Send, 0, a.mr.sge(0, 8))
	if got := e.asyncEvent(time.Second); got != asyncSRQLimit {
		t.Errorf("event %d below the limit, want %d", got, asyncSRQLimit)
	}
	a.do(mlx5Send, 0, a.mr.sge(0, 8))
	if got := e.asyncEvent(3 * time.Millisecond); got != -1 {
		t.Errorf("event %d again", got)
	}
	if got := s.query().SrqLimit; got != 0 {
		t.Errorf("limit %d after its event, want 0", got)
	}
	must(t, s.limit(5))
	if got := e.asyncEvent(time.Second); got != asyncSRQLimit {
		t.Errorf("event %d of a limit that was passed before, want %d", got, asyncSRQLimit)
	}
}

// TestMLX5LastWQE: a queue pair with a shared queue goes to error.
func TestMLX5LastWQE(t *testing.T) {
	d := openMLX5(t, mlx5Kernel(t, "5.10", MLX5{}))
	s := d.srq(4)
	q := (&mlxQP{d: d, srq: s}).create()
	must(t, q.toInit())
	s.post(q.mr.sge(0, 8))
	for range 2 {
		must(t, q.modify(abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateError}))
	}
	if got := d.asyncEvent(time.Second); got != asyncLastWQE {
		t.Errorf("event %d, want %d", got, asyncLastWQE)
	}
	if got := d.asyncEvent(3 * time.Millisecond); got != -1 {
		t.Errorf("event %d of a queue pair that was in error", got)
	}
	q.recv.none("a request of the shared queue")
}

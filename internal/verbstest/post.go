//go:build linux

package verbstest

import (
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) postTests() []test {
	return []test{
		{"QueueFull", u.queueFull},
		{"SelectiveSignalling", u.selectiveSignalling},
		{"BatchStopsAtMistake", u.batchStopsAtMistake},
		{"PostMistakes", u.postMistakes},
		{"PostFromMany", u.postFromMany},
		{"SingleGoroutine", u.singleGoroutine},
		{"Builder", u.builder},
		{"BuilderAllOrNothing", u.builderAllOrNothing},
		{"BuilderInlineRoom", u.builderInlineRoom},
		{"BuilderSpecials", u.builderSpecials},
		{"BuilderDatagrams", u.builderDatagrams},
		{"BuilderAfterClose", u.builderAfterClose},
	}
}

// queueFull: unsignaled requests hold their slots; a full queue is the bare sentinel, says
// how many were taken, and recovers.
func (u *Suite) queueFull(t *testing.T) {
	a, b := u.pair(t, 4096)
	granted := int(a.qp.Cap().MaxSendWR)
	wrs := make([]uverbs.SendWR, 200)
	for i := range wrs {
		wrs[i] = a.remote(uverbs.SendWR{ID: uint64(i), Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, 8)}}, b)
	}
	done := 0
	for done < len(wrs) {
		n, err := a.qp.PostSend(wrs[done:])
		if err != nil && err != uverbs.ErrQueueFull { //nolint:errorlint // the bare sentinel is promised
			t.Fatal(err)
		}
		if err == nil && n != len(wrs)-done {
			t.Fatalf("posted %d of %d without an error", n, len(wrs)-done)
		}
		if done == 0 && n < granted {
			t.Errorf("an empty queue of %d took %d", granted, n)
		}
		for i := range n {
			a.ok(t, uint64(done+i), uverbs.WCRDMAWrite)
		}
		done += n
	}
	a.quiet(t)
	recvs := make([]uverbs.RecvWR, 200)
	n, err := b.qp.PostRecv(recvs)
	if !errors.Is(err, uverbs.ErrQueueFull) || n < int(b.qp.Cap().MaxRecvWR) || n == len(recvs) {
		t.Errorf("posted %d of %d receives into %d, %v; want ErrQueueFull", n, len(recvs), b.qp.Cap().MaxRecvWR, err)
	}
}

// selectiveSignalling: one completion stands for all requests before it, and their slots
// come back with it.
func (u *Suite) selectiveSignalling(t *testing.T) {
	a, b := u.pair(t, 4096)
	const every = 8
	wrs := make([]uverbs.SendWR, every)
	for i := range wrs {
		wrs[i] = a.remote(uverbs.SendWR{ID: uint64(i), Opcode: uverbs.OpRDMAWrite, SGL: []uverbs.SGE{a.mr.SGE(0, 8)}}, b)
	}
	wrs[every-1].Flags = uverbs.SendSignaled
	for round := range 40 { // many times the queue
		if n, err := a.qp.PostSend(wrs); n != every || err != nil {
			t.Fatalf("round %d: posted %d, %v", round, n, err)
		}
		a.ok(t, every-1, uverbs.WCRDMAWrite)
	}
	a.quiet(t)
}

// batchStopsAtMistake: what is before a wrong request goes out, what is behind it does not.
func (u *Suite) batchStopsAtMistake(t *testing.T) {
	a, b := u.pair(t, 4096)
	good := a.remote(uverbs.SendWR{ID: 1, Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, 8)}}, b)
	bad := good
	bad.SGL = []uverbs.SGE{a.mr.SGE(4096, 1)}
	var e *uverbs.Error
	if n, err := a.qp.PostSend([]uverbs.SendWR{good, good, bad, good}); n != 2 || !errors.As(err, &e) || !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("posted %d, %v; want 2 and ErrInvalid", n, err)
	}
	a.ok(t, 1, uverbs.WCRDMAWrite)
	a.ok(t, 1, uverbs.WCRDMAWrite)
	badRecv := uverbs.RecvWR{SGL: []uverbs.SGE{b.mr.SGE(-1, 1)}}
	if n, err := b.qp.PostRecv([]uverbs.RecvWR{{ID: 1}, badRecv, {ID: 2}}); n != 1 || !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("posted %d receives, %v; want 1 and ErrInvalid", n, err)
	}
	a.quiet(t)
	if n, err := a.qp.PostSend(nil); n != 0 || err != nil {
		t.Errorf("nothing: posted %d, %v", n, err)
	}
	if n, err := b.qp.PostRecv(nil); n != 0 || err != nil {
		t.Errorf("no receive: posted %d, %v", n, err)
	}
}

// postMistakes: what no queue pair could do is refused, and named.
func (u *Suite) postMistakes(t *testing.T) {
	a, b := u.pair(t, 4096)
	one := []uverbs.SGE{a.mr.SGE(0, 1)}
	huge := []uverbs.SGE{{Length: 1 << 31}, {Length: 1}}
	for what, wr := range map[string]uverbs.SendWR{
		"unknown operation":    {Opcode: 31},
		"operation out of all": {Opcode: 1 << 20},
		"unknown flag":         {Opcode: uverbs.OpSend, Flags: 1 << 10},
		"too many pieces":      {Opcode: uverbs.OpSend, SGL: make([]uverbs.SGE, 100)},
		"more than 2 GiB":      {Opcode: uverbs.OpSend, SGL: huge},
		"wraps to 8":           {Opcode: uverbs.OpSend, SGL: []uverbs.SGE{{Length: 1<<32 - 2}, {Length: 10}}},
		"outside its region":   {Opcode: uverbs.OpSend, SGL: []uverbs.SGE{a.mr.SGE(4095, 2)}},
		"inline without flag":  {Opcode: uverbs.OpSend, Inline: [][]byte{{1}}},
		"inline and pieces":    {Opcode: uverbs.OpSend, Flags: uverbs.SendInline, SGL: one},
		"inline read":          {Opcode: uverbs.OpRDMARead, Flags: uverbs.SendInline, Inline: [][]byte{{1}}},
	} {
		n, err := a.qp.PostSend([]uverbs.SendWR{wr})
		if n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%s: posted %d, %v; want ErrInvalid", what, n, err)
		}
	}
	fresh := u.newHost(t, 4096).make(t, shape{})
	if n, err := fresh.qp.PostRecv([]uverbs.RecvWR{{}}); u.byHand(t) && (n != 0 || err == nil) {
		t.Errorf("receive in RESET: posted %d, %v", n, err)
	}
	if n, err := fresh.qp.PostSend([]uverbs.SendWR{{Opcode: uverbs.OpSend}}); n != 0 || err == nil {
		t.Errorf("send in RESET: posted %d, %v", n, err)
	}
	works(t, a, b)
}

// postFromMany: goroutines share a queue pair and a completion queue.
func (u *Suite) postFromMany(t *testing.T) {
	a, b := u.pair(t, 4096)
	const workers, each = 4, 60
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				wr := a.remote(uverbs.SendWR{ID: uint64(w<<16 | i), Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, 8)}}, b)
				for {
					_, err := a.qp.PostSend([]uverbs.SendWR{wr})
					if err == nil {
						break
					}
					if !errors.Is(err, uverbs.ErrQueueFull) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	seen := map[uint64]bool{}
	for range workers * each {
		wc := a.next(t)
		testutil.Must(t, wc.Err())
		if seen[wc.ID] {
			t.Fatalf("request %#x completed twice", wc.ID)
		}
		seen[wc.ID] = true
	}
	wg.Wait()
	a.quiet(t)
}

// singleGoroutine: the same without locks, for one who promises to be alone.
func (u *Suite) singleGoroutine(t *testing.T) {
	attr := uverbs.CQInitAttr{CQE: 256, SingleGoroutine: true}
	ha := u.newHostWith(t, 4096, u.access(t), attr)
	hb := u.newHostWith(t, 4096, u.access(t), attr)
	a, b := u.link(t, ha, hb, shape{SingleGoroutine: true}, shape{SingleGoroutine: true})
	for range 50 {
		works(t, a, b)
	}
	bd := a.qp.StartSend()
	bd.Write(1, uverbs.SendSignaled, b.mr.Addr(), b.mr.RKey()).SGE(a.mr.SGE(0, 8))
	if n, err := bd.Complete(); n != 1 || err != nil {
		t.Errorf("built %d, %v", n, err)
	}
	a.ok(t, 1, uverbs.WCRDMAWrite)
	testutil.Must(t, a.qp.Close())
	if _, err := a.qp.PostSend([]uverbs.SendWR{{}}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("post after close: got %v, want net.ErrClosed", err)
	}
}

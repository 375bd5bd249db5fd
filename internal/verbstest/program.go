//go:build linux

package verbstest

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) programTests() []test {
	return []test{
		{"RW07ChildrenUnderTraffic", u.rw07ChildrenUnderTraffic},
		{"RW07ManyRegistrations", u.rw07ManyRegistrations},
	}
}

// rw07ChildrenUnderTraffic: other programs are started while memory is registered that
// shares its pages with other memory, and data is on the way. All arrives as it was sent,
// and what lies beside the registered memory is what it was.
func (u *Suite) rw07ChildrenUnderTraffic(t *testing.T) {
	program, err := exec.LookPath("true")
	if err != nil {
		testutil.Skip(t, "a program named true", "install coreutils or busybox")
	}
	regions, children := 500, 50
	if u.Short {
		regions, children = 50, 5
	}
	a, b := u.pair(t, 4096)
	// One piece of the Go heap, of which every second 2 KiB are registered.
	const size = 2048
	memory := make([]byte, 2*size*regions)
	testutil.Fill(memory, 7)
	want := bytes.Clone(memory)
	var mrs []*uverbs.MR
	for i := range regions {
		mr, err := a.pd.RegMR(memory[2*size*i:][:size], uverbs.AccessLocalWrite)
		testutil.Must(t, err)
		mrs = append(mrs, mr)
	}
	done := make(chan error, 1)
	go func() {
		for range children {
			if err := exec.Command(program).Run(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i, running := 0, true; running; i++ {
		select {
		case err := <-done:
			testutil.Must(t, err)
			running = false
		default:
		}
		mr := mrs[i%regions]
		b.recv(t, 1, 0, size)
		a.send(t, uverbs.SendWR{ID: 2, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{mr.SGE(0, size)}})
		a.ok(t, 2, uverbs.WCSend)
		b.ok(t, 1, uverbs.WCRecv)
		if !bytes.Equal(b.mr.Bytes()[:size], mr.Bytes()) {
			t.Fatalf("message %d changed on the way", i)
		}
		// And back, into the middle of a page that is not all ours.
		testutil.Fill(b.mr.Bytes()[:size], uint64(i))
		copy(want[2*size*(i%regions):][:size], b.mr.Bytes())
		_, err := a.qp.PostRecv([]uverbs.RecvWR{{ID: 3, SGL: []uverbs.SGE{mr.SGE(0, size)}}})
		testutil.Must(t, err)
		b.send(t, uverbs.SendWR{ID: 4, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{b.mr.SGE(0, size)}})
		b.ok(t, 4, uverbs.WCSend)
		a.ok(t, 3, uverbs.WCRecv)
	}
	if !bytes.Equal(memory, want) {
		t.Error("the memory is not what it should be")
	}
	for _, mr := range mrs {
		closeAll(t, mr)
	}
}

// rw07ManyRegistrations: registering and deregistering for ever leaves no mark on the
// address space.
func (u *Suite) rw07ManyRegistrations(t *testing.T) {
	rounds := 3000
	if u.Short {
		rounds = 500
	}
	h := u.newHost(t, 4096)
	heap := make([]byte, 50_000)
	cycle := func(n int) {
		for i := range n {
			var (
				mr  *uverbs.MR
				err error
			)
			if size := 1 + i*7919%40_000; i%2 == 0 {
				mr, err = h.pd.AllocMR(size, uverbs.AccessLocalWrite)
			} else {
				mr, err = h.pd.RegMR(heap[i%5000:][:size], uverbs.AccessLocalWrite)
			}
			testutil.Must(t, err)
			testutil.Must(t, mr.Close())
		}
	}
	cycle(100) // what the first rounds need stays
	before := testutil.Mappings()
	cycle(rounds)
	if after := testutil.Mappings(); after > before+20 {
		t.Errorf("there are %d mappings, %d were at the start", after, before)
	}
}

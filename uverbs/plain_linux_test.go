package uverbs_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// TestPlainPosts: the way that most requests take, past the general one, asks for the state and
// the size of the queue pair too. Nothing of these posts reaches the kernel.
func TestPlainPosts(t *testing.T) {
	for name, devices := range map[string][]fakekernel.Device{"rxe": rxe, "siw": siw} {
		t.Run(name, func(t *testing.T) {
			_, device := fake(t, fakekernel.Options{Devices: devices})
			c, err := device(t).Open()
			testutil.Must(t, err)
			defer c.Close()
			pd, err := c.AllocPD()
			testutil.Must(t, err)
			defer pd.Close()
			cq, err := c.CreateCQ(16, nil)
			testutil.Must(t, err)
			defer cq.Close()
			for name, cap := range map[string]uverbs.QPCap{
				"one piece": {MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
				"no pieces": {MaxSendWR: 4, MaxRecvWR: 4},
			} {
				q, err := pd.CreateQP(&uverbs.QPInitAttr{SendCQ: cq, Cap: cap})
				testutil.Must(t, err)
				if q.Cap().MaxSendSGE != cap.MaxSendSGE || q.Cap().MaxRecvSGE != cap.MaxRecvSGE {
					t.Fatalf("%s: granted %+v", name, q.Cap())
				}
				postPlain(t, name, q, cap.MaxSendSGE > 0)
			}
			s, err := pd.CreateSRQ(&uverbs.SRQInitAttr{MaxWR: 4, MaxSGE: 1})
			testutil.Must(t, err)
			testutil.Must(t, s.Close())
			if n, err := s.PostRecv(nil); n != 0 || !errors.Is(err, net.ErrClosed) {
				t.Errorf("closed shared queue: got %d, %v", n, err)
			}
		})
	}
}

func postPlain(t *testing.T, name string, q *uverbs.QP, pieces bool) {
	piece := []uverbs.SGE{{Addr: 4096, Length: 8, LKey: 1}}
	send := func() (int, error) { return q.PostSend([]uverbs.SendWR{{Opcode: uverbs.OpSend, SGL: piece}}) }
	recv := func() (int, error) { return q.PostRecv([]uverbs.RecvWR{{SGL: piece}}) }
	check := func(what string, post func() (int, error), wantErr error) {
		t.Helper()
		want := 0
		if wantErr == nil {
			want = 1
		}
		if n, err := post(); n != want || !errors.Is(err, wantErr) {
			t.Errorf("%s, %s: got %d, %v; want %d, %v", name, what, n, err, want, wantErr)
		}
	}
	check("RESET, send", send, syscall.EINVAL)
	check("RESET, receive", recv, uverbs.ErrInvalid)
	var tooMany error
	if !pieces {
		tooMany = uverbs.ErrInvalid
	}
	if iWARP := q.Modify(&uverbs.QPAttr{State: uverbs.StateRTS}, uverbs.QPAttrState) == nil; iWARP {
		if check("RTS, receive", recv, tooMany); !pieces {
			check("RTS, send", send, tooMany)
		}
	} else {
		testutil.Must(t, q.Modify(&uverbs.QPAttr{State: uverbs.StateInit, PortNum: 1},
			uverbs.QPAttrState|uverbs.QPAttrPort|uverbs.QPAttrPKeyIndex|uverbs.QPAttrAccessFlags))
		check("INIT, send", send, syscall.EINVAL)
		check("INIT, receive", recv, tooMany)
	}
	testutil.Must(t, q.Close())
	for what, post := range map[string]func() (int, error){
		"closed, send": send, "closed, receive": recv,
		"closed, no send": func() (int, error) { return q.PostSend(nil) }, "closed, no receive": func() (int, error) { return q.PostRecv(nil) },
	} {
		check(what, post, net.ErrClosed)
	}
}

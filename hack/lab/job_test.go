//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/hack/lab/vm"
	"github.com/pureverbs/rdma/hack/lab/wire"
)

// fakeGuest stands for a machine: answer gets what the host sends, and its frames
// go to the host.
func fakeGuest(t *testing.T, answer func(wire.Kind, []byte) []frame) *guest {
	t.Helper()
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	g := &guest{vm: &vm.VM{Conn: wire.NewConn(nil, w)}, frames: make(chan frame), gone: make(chan struct{})}
	host := wire.NewConn(r, nil)
	go func() {
		for {
			k, p, err := host.Recv()
			if err != nil {
				return
			}
			out := answer(k, p)
			go func() { // the host may be sending more
				for _, f := range out {
					g.frames <- f
				}
			}()
		}
	}()
	return g
}

func exit(code int) frame {
	b, _ := json.Marshal(wire.Status{Code: code})
	return frame{wire.Exit, b}
}

func TestJobOutputAndStatus(t *testing.T) {
	g := fakeGuest(t, func(k wire.Kind, p []byte) []frame {
		if k == wire.Start {
			return []frame{{wire.Stdout, []byte("out")}, {wire.Stderr, []byte("err")}, exit(3)}
		}
		return nil
	})
	_, sig := catchInterrupts(context.Background())
	defer sig.stop()
	var out, errOut bytes.Buffer
	s, err := g.run(context.Background(), sig, wire.Job{Argv: []string{"x"}}, jobIO{out: &out, err: &errOut}, time.Minute)
	if s.Code != 3 || err != nil || out.String() != "out" || errOut.String() != "err" {
		t.Errorf("got status %d, %v, output %q and %q", s.Code, err, &out, &errOut)
	}
}

func TestJobInput(t *testing.T) {
	var got bytes.Buffer
	g := fakeGuest(t, func(k wire.Kind, p []byte) []frame {
		switch k {
		case wire.Stdin:
			got.Write(p)
			return []frame{{wire.StdinAck, nil}}
		case wire.StdinEOF:
			return []frame{exit(0)}
		}
		return nil
	})
	_, sig := catchInterrupts(context.Background())
	defer sig.stop()
	in := bytes.Repeat([]byte("0123456789"), 10_000)
	_, err := g.run(context.Background(), sig, wire.Job{}, jobIO{in: bytes.NewReader(in), out: io.Discard, err: io.Discard}, time.Minute)
	if err != nil || !bytes.Equal(got.Bytes(), in) {
		t.Errorf("%v; the job got %d of %d bytes", err, got.Len(), len(in))
	}
}

func TestJobTimeLimit(t *testing.T) {
	g := fakeGuest(t, func(k wire.Kind, _ []byte) []frame {
		if k == wire.Abort {
			return []frame{exit(131)}
		}
		return nil
	})
	_, sig := catchInterrupts(context.Background())
	defer sig.stop()
	s, err := g.run(context.Background(), sig, wire.Job{}, jobIO{out: io.Discard, err: io.Discard}, 10*time.Millisecond)
	if !errors.Is(err, errTimeout) || s.Code != 131 {
		t.Errorf("got status %d, %v; want 131 and the time limit", s.Code, err)
	}
}

func TestJobSignals(t *testing.T) {
	signals := make(chan byte, 8)
	started := make(chan struct{})
	g := fakeGuest(t, func(k wire.Kind, p []byte) []frame {
		switch k {
		case wire.StdinEOF:
			close(started)
		case wire.Signal:
			signals <- p[0]
		}
		return nil
	})
	_, sig := catchInterrupts(context.Background())
	defer sig.stop()
	result := make(chan error, 1)
	go func() {
		_, err := g.run(context.Background(), sig, wire.Job{}, jobIO{out: io.Discard, err: io.Discard}, time.Minute)
		result <- err
	}()
	<-started
	for range 3 {
		sig.deliver(syscall.SIGINT)
	}
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("after the third signal: got %v", err)
	}
	for range 2 {
		if s := <-signals; s != byte(syscall.SIGINT) {
			t.Errorf("the job got signal %d, want %d", s, syscall.SIGINT)
		}
	}
	if len(signals) > 0 {
		t.Error("the third signal reached the job")
	}
	if !sig.seen() {
		t.Error("the signals were not noted")
	}
}

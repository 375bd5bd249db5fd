//go:build linux

package fakekernel

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// The library above is used here as programs use it: many connections at once, so that the
// race detector sees both sides.

const libMessages = 50

func libOptions(k *Kernel, prepare func(*rdmacm.Conn) error) *rdmacm.Options {
	return &rdmacm.Options{System: []rdmacm.Option{rdmacm.WithSystem(k.System())}, Prepare: prepare}
}

// libEnd is one end of a connection, with a buffer to send from and one to receive in.
type libEnd struct {
	c       *rdmacm.Conn
	out, in *uverbs.MR
}

func (e *libEnd) prepare(c *rdmacm.Conn) (err error) {
	e.c = c
	if e.out, err = c.AllocMR(4096, uverbs.AccessLocalWrite); err == nil {
		e.in, err = c.AllocMR(4096, uverbs.AccessLocalWrite|uverbs.AccessRemoteWrite|uverbs.AccessRemoteRead)
	}
	if err == nil {
		err = e.post()
	}
	return err
}

func (e *libEnd) post() error {
	_, err := e.c.QP().PostRecv([]uverbs.RecvWR{{ID: 1, SGL: []uverbs.SGE{e.in.SGE(0, 4096)}}})
	return err
}

// one waits for one completion.
func one(ctx context.Context, q *uverbs.CQ) (uverbs.WC, error) {
	var wc [1]uverbs.WC
	_, err := q.Wait(ctx, wc[:])
	if err == nil {
		err = wc[0].Err()
	}
	return wc[0], err
}

func (e *libEnd) send(ctx context.Context, n int) error {
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{e.out.SGE(0, n)}}
	if _, err := e.c.QP().PostSend([]uverbs.SendWR{wr}); err != nil {
		return err
	}
	_, err := one(ctx, e.c.SendCQ())
	return err
}

// echo answers with what it got, until the connection ends.
func (e *libEnd) echo(ctx context.Context) error {
	for {
		wc, err := one(ctx, e.c.RecvCQ())
		if wc.Status == uverbs.WCFlushError {
			return nil
		}
		if err != nil {
			return err
		}
		copy(e.out.Bytes(), e.in.Bytes()[:wc.ByteLen])
		if err := errors.Join(e.post(), e.send(ctx, int(wc.ByteLen))); err != nil {
			return err
		}
	}
}

func (e *libEnd) ask(ctx context.Context) error {
	for i := range libMessages {
		n := 1 + i*80
		fill(e.out.Bytes()[:n], byte(i))
		if err := e.send(ctx, n); err != nil {
			return err
		}
		wc, err := one(ctx, e.c.RecvCQ())
		if err != nil {
			return err
		}
		if int(wc.ByteLen) != n || !bytes.Equal(e.in.Bytes()[:n], e.out.Bytes()[:n]) {
			return errors.New("the answer differs")
		}
		if err := e.post(); err != nil {
			return err
		}
	}
	return nil
}

func TestSiwLibrary(t *testing.T) {
	for name, opts := range map[string]Options{"plain": {}, "deferred": {Deferred: true}, "late": {AckDelay: time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			k := startSiw(t, opts)
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			l, err := rdmacm.Listen(ctx, "[::]:7174", libOptions(k, nil))
			must(t, err)
			defer l.Close()
			var wg sync.WaitGroup
			for _, address := range []string{"10.9.0.1:7174", "[2001:db8:9::1]:7174", "10.9.0.1:7174"} {
				wg.Go(func() { libServe(ctx, t, k, l) })
				wg.Go(func() { libDial(ctx, t, k, address) })
			}
			wg.Wait()
		})
	}
}

func libServe(ctx context.Context, t *testing.T, k *Kernel, l *rdmacm.Listener) {
	r, err := l.Next(ctx)
	if err != nil {
		t.Error(err)
		return
	}
	var e libEnd
	o := libOptions(k, e.prepare)
	o.ConnParam.PrivateData = []byte("yes")
	c, err := r.Accept(ctx, o)
	if err != nil {
		t.Error(err)
		return
	}
	if err := e.echo(ctx); err != nil {
		t.Errorf("server: %v", err)
	}
	<-c.Done()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func libDial(ctx context.Context, t *testing.T, k *Kernel, address string) {
	var e libEnd
	c, err := rdmacm.Dial(ctx, address, libOptions(k, e.prepare))
	if err != nil {
		t.Error(err)
		return
	}
	if string(c.PrivateData()) != "yes" {
		t.Errorf("private data %q", c.PrivateData())
	}
	if err := e.ask(ctx); err != nil {
		t.Errorf("client: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestSiwLibraryRefusals: the errors of Dial.
func TestSiwLibraryRefusals(t *testing.T) {
	k := startSiw(t, Options{Devices: []Device{{Driver: abi.RDMA_DRIVER_SIW}}})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err := rdmacm.Dial(ctx, "10.9.0.1:7174", libOptions(k, nil))
	want(t, "nobody", err, syscall.ECONNREFUSED)
	l, err := rdmacm.Listen(ctx, "10.9.0.1:7174", libOptions(k, nil))
	must(t, err)
	defer l.Close()
	go func() {
		if r, err := l.Next(ctx); err == nil {
			_ = r.Reject([]byte("no"))
		}
	}()
	_, err = rdmacm.Dial(ctx, "10.9.0.1:7174", libOptions(k, nil))
	var rejected *rdmacm.RejectedError
	if !errors.As(err, &rejected) || string(rejected.PrivateData) != "no" {
		t.Errorf("rejected: %v", err)
	}
	if err == nil || strings.Contains(err.Error(), "reason -") {
		t.Errorf("message: %v", err)
	}
}

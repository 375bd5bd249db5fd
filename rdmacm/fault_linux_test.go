package rdmacm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// RW-17: clients that give up at any moment cost the server nothing but their own request.
func TestRW17ClientsGiveUp(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	const clients = 60
	var wg sync.WaitGroup
	for i := range clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*100*time.Microsecond)
			defer cancel()
			if c, err := rdmacm.Dial(ctx, server, options(k, nil)); err == nil {
				c.Close()
			}
		}()
	}
	wg.Wait() // all have gone before the first is answered
	good := make(chan error)
	go func() {
		c, err := rdmacm.Dial(testContext(t), server, options(k, &rdmacm.Options{ConnParam: rdmacm.ConnParam{PrivateData: []byte("good")}}))
		if err == nil {
			err = c.Close()
		}
		good <- err
	}()
	for {
		c, err := l.Accept(testContext(t))
		if err != nil {
			t.Fatalf("the listener failed: %v", err)
		}
		done := bytes.HasPrefix(c.PrivateData(), []byte("good"))
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if done {
			break
		}
	}
	if err := <-good; err != nil {
		t.Error(err)
	}
}

// A client that never confirms holds Accept up for AcceptTimeout, no longer.
func TestAcceptTimeout(t *testing.T) {
	k := newKernel(t, fakekernel.Options{CMTimeout: time.Hour})
	l := mustListen(t, k, server, &rdmacm.Options{AcceptTimeout: 50 * time.Millisecond})
	_, id := rawClient(t, k)
	accepted := make(chan struct{}, 1)
	var serving sync.WaitGroup
	serving.Add(1)
	go func() {
		defer serving.Done()
		for {
			c, err := l.Accept(testContext(t))
			if err != nil {
				mustBe(t, "accept", err, net.ErrClosed)
				return
			}
			c.Close()
			select {
			case accepted <- struct{}{}:
			default:
			}
		}
	}()
	// Nobody receives this client's events, so nobody confirms. Accept turns to the next. On
	// a busy machine that may be too late as well, and another comes.
	if err := id.Connect(rdmacm.ConnParam{}); err != nil {
		t.Fatal(err)
	}
	for len(accepted) == 0 {
		c, err := rdmacm.Dial(testContext(t), server, options(k, nil))
		if err == nil {
			err = c.Close()
		}
		if err != nil && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, rdmacm.ErrDisconnected) {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	serving.Wait()
}

func TestPrepareFails(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	broken := errors.New("no memory for you")
	prepare := func(c *rdmacm.Conn) error {
		if _, err := c.AllocMR(4096, 0); err != nil {
			return err
		}
		return broken
	}
	_, err := rdmacm.Dial(testContext(t), server, options(k, &rdmacm.Options{Prepare: prepare}))
	mustBe(t, "dial", err, broken)
	dialled := make(chan error)
	go func() {
		_, err := rdmacm.Dial(testContext(t), server, options(k, nil))
		dialled <- err
	}()
	r, err := l.Next(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Accept(testContext(t), &rdmacm.Options{Prepare: prepare})
	mustBe(t, "accept", err, broken)
	mustBe(t, "the other end", <-dialled, syscall.ECONNREFUSED)
}

// A failed attempt whose Prepare made memory regions behind the connection's back: the
// program closes them when it hears of the failure, and then nothing is left.
func TestFailedAcceptLeavesMemory(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	broken := errors.New("no")
	dialled := make(chan error)
	for range 2 {
		go func() {
			_, err := rdmacm.Dial(testContext(t), server, options(k, nil))
			dialled <- err
		}()
		r, err := l.Next(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		var mr *uverbs.MR
		_, err = r.Accept(testContext(t), &rdmacm.Options{Prepare: func(c *rdmacm.Conn) error {
			mr, err = c.PD().AllocMR(4096, 0)
			return errors.Join(err, broken)
		}})
		mustBe(t, "accept", err, broken)
		if errors.Is(err, rdmacm.ErrBusy) {
			t.Errorf("%v speaks of what is in use", err)
		}
		mustBe(t, "dial", <-dialled, syscall.ECONNREFUSED)
		if err := mr.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := k.Counts().PDs; n != 1 {
		t.Errorf("%d protection domains are left, want only that of the last attempt", n)
	}
}

// making matches the calls that make or change something. Those that destroy are left out:
// if they fail something is left, and Close says so.
func making(c fakekernel.Call) bool {
	switch c.Kind {
	case fakekernel.CallCM:
		return c.Cmd != abi.RDMA_USER_CM_CMD_DESTROY_ID && c.Cmd != abi.RDMA_USER_CM_CMD_GET_EVENT
	case fakekernel.CallOpen, fakekernel.CallMap, fakekernel.CallWrite:
		return true
	case fakekernel.CallIoctl:
		switch [2]uint16{c.Object, c.Method} {
		case [2]uint16{abi.UVERBS_OBJECT_PD, abi.UVERBS_METHOD_PD_DESTROY}, [2]uint16{abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_MR_DESTROY},
			[2]uint16{abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_DESTROY}, [2]uint16{abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_DESTROY}:
			return false
		}
		return true
	}
	return false
}

// Every call into the kernel fails once. The attempt fails or succeeds, and leaves nothing
// behind; newKernel checks that.
func TestEveryCallFailsOnce(t *testing.T) {
	for n := int32(1); n < 500; n++ {
		reached := false
		t.Run(fmt.Sprint("call ", n), func(t *testing.T) { reached = attempt(t, n) })
		if !reached {
			return
		}
	}
	t.Error("the calls do not end")
}

// attempt dials and accepts while call n fails, and tells whether there was one.
func attempt(t *testing.T, n int32) bool {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, &rdmacm.Options{Prepare: new(end).prepare})
	ctx, cancel := context.WithCancel(testContext(t))
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for ctx.Err() == nil {
			if c, err := l.Accept(ctx); err == nil {
				c.Close() // what is left shows
			}
		}
	}()
	var reached atomic.Bool
	nth := fakekernel.Nth(n, making)
	stop := k.Fail(func(c fakekernel.Call) bool {
		hit := nth(c)
		if hit {
			reached.Store(true)
		}
		return hit
	}, syscall.ENOMEM)
	c, err := rdmacm.Dial(ctx, server, options(k, &rdmacm.Options{Prepare: new(end).prepare}))
	if err == nil {
		err = c.Close()
	}
	if err != nil && ctx.Err() != nil {
		t.Errorf("the attempt hung: %v", err)
	}
	stop()
	cancel()
	<-accepted
	return reached.Load()
}

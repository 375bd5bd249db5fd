//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
)

// TestSilentClient connects, says nothing, and is timed out; in either protocol.
func TestSilentClient(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	s := serve(t, k, "--idle-timeout", "100ms")
	for _, rping := range []bool{false, true} {
		o := defaultPingOptions()
		o.rping, o.interval = rping, time.Millisecond
		p, err := dialled(t.Context(), k, &o)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-p.link.conn.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("still connected after 10 s")
		}
		if err := p.link.close(); err != nil {
			t.Error(err)
		}
	}
	eventually(t, func() string {
		if got := strings.Count(s.out.String(), "dropped, silent for 100ms: 0 answered"); got != 2 {
			return s.out.String()
		}
		return ""
	})
}

// misbehave is one client that stops at a point of its choice.
func misbehave(k *fakekernel.Kernel, kind int) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	o := defaultPingOptions()
	o.interval = time.Millisecond
	o.rping = kind >= 6
	switch kind {
	case 0: // gives up in the middle of the handshake
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(2000))*time.Microsecond)
		defer cancel()
	case 1: // lies about its hello: asks for more than it may have
		o.size = maxData
	}
	if kind == 1 {
		lie(ctx, k)
		return
	}
	p, err := dialled(ctx, k, &o)
	if err != nil {
		return
	}
	defer p.link.close()
	talk(ctx, p, kind)
}

// talk is what a client does that did get its connection.
func talk(ctx context.Context, p *pinging, kind int) {
	l := &p.link
	switch kind {
	case 2: // says nothing until it is dropped
		<-l.conn.Done()
	case 3: // sends garbage
		copy(l.slots.bytes(0, headerLen), "this is no header of ours")
		l.postSend(0, headerLen)
		<-l.conn.Done()
	case 4, 6: // does well and leaves in the middle
		c, err := p.client(ctx)
		for seq := uint64(1); err == nil && seq < 4; seq++ {
			_, err = c.ping(seq)
		}
	case 5: // its queue pair is gone without a word
		l.conn.QP().Close()
	case 7: // offers more than there is
		l.sendInfo(&rpingInfo{addr: 4096, rkey: 1, size: 1<<32 - 1})
		<-l.conn.Done()
	case 8: // offers memory that it has not
		l.sendInfo(&rpingInfo{addr: 4096, rkey: 0xdead, size: 64})
		<-l.conn.Done()
	case 9: // offers memory, and nowhere for the echo
		if c, err := newRpingClient(ctx, l, 64, time.Second); err == nil {
			c.offer(c.source, phaseRead)
			l.recv.wait(ctx)
		}
		<-l.conn.Done()
	}
}

// lie sends hellos that are not true.
func lie(ctx context.Context, k *fakekernel.Kernel) {
	huge := hello{kind: kindRequest, size: 1<<32 - 1, window: 1<<16 - 1}
	long := (&hello{kind: kindRequest, size: 56, window: 4}).marshal()
	long[6] = 0xff
	for _, private := range [][]byte{huge.marshal(), long, []byte("RPNG"), []byte("hello")} {
		conn, err := rdmacm.Dial(ctx, serverAddr+":7174", &rdmacm.Options{
			System:    []rdmacm.Option{rdmacm.WithSystem(k.System())},
			ConnParam: rdmacm.ConnParam{PrivateData: private},
		})
		if err == nil {
			panic("a hello that lies was accepted")
		}
		_ = conn
	}
}

// TestStrangers has 200 clients stop at random points, lie and stall. The server goes on,
// serves a good client at the same time and one afterwards, and in the end holds nothing.
func TestStrangers(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	s := serve(t, k, "--idle-timeout", "1s", "--max-clients", "32", "--max-size", "4k")
	before := k.Counts()
	good := start(t, k, "-i", "10ms", serverAddr)
	good.out.await(t, "seq=1")
	work := make(chan int)
	var clients sync.WaitGroup
	for range 12 {
		clients.Go(func() {
			for kind := range work {
				misbehave(k, kind)
			}
		})
	}
	for i := range 200 {
		work <- i % 10
	}
	close(work)
	clients.Wait()
	if status := good.stop(); status != statusOK || good.errOut.String() != "" {
		t.Errorf("good client: status %d, stderr %q\n%s\nserver:\n%s", status, good.errOut.String(), good.out.String(), s.out.String())
	}
	if status, out, errs := ping(t, k, "-c", "5", "-i", "0", serverAddr); status != statusOK {
		t.Errorf("afterwards: status %d, stderr %q, stdout:\n%s", status, errs, out)
	}
	eventually(t, func() string {
		after := k.Counts()
		after.Contexts, after.AsyncChannels = before.Contexts, before.AsyncChannels // kept while the server runs
		if after != before {
			return "objects are left: " + strings.TrimSpace(s.out.String())
		}
		return ""
	})
	for _, want := range []string{"refused: wants messages of", "refused: hello of", "dropped, silent for 1s", "left: 3 answered"} {
		if !strings.Contains(s.out.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, s.out.String())
		}
	}
}

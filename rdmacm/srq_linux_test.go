package rdmacm_test

import (
	"syscall"
	"testing"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// Two clients, and one shared receive queue for all that the listener accepts.
func TestSharedReceiveQueue(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	ctx := testContext(t)
	devs, err := uverbs.Devices(uverbs.WithSystem(k.System()))
	if err != nil {
		t.Fatal(err)
	}
	dev, err := devs[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "context", dev.Close)
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "protection domain", pd.Close)
	srq, err := pd.CreateSRQ(&uverbs.SRQInitAttr{MaxWR: 64, MaxSGE: 1})
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "shared receive queue", srq.Close)
	mr, err := pd.AllocMR(64*slotSize, uverbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "memory region", mr.Close)
	for i := range 64 {
		if _, err := srq.PostRecv([]uverbs.RecvWR{{ID: uint64(i), SGL: []uverbs.SGE{mr.SGE(i*slotSize, slotSize)}}}); err != nil {
			t.Fatal(err)
		}
	}
	l := mustListen(t, k, server, &rdmacm.Options{SRQ: srq})
	seen := map[uint64]bool{}
	for _, text := range []string{"first", "second"} {
		accepted := make(chan *rdmacm.Conn, 1)
		go func() {
			c, err := l.Accept(ctx)
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
		client := new(end)
		client.Conn, err = rdmacm.Dial(ctx, server, options(k, &rdmacm.Options{Prepare: client.prepare}))
		if err != nil {
			t.Fatal(err)
		}
		closeLater(t, "client", client.Close)
		conn := <-accepted
		if conn == nil {
			t.FailNow()
		}
		closeLater(t, "server's end", conn.Close)
		if conn.QP().SRQ() != srq || conn.PD() != pd || conn.RecvCQ().Cap() < 64 {
			t.Errorf("got a queue pair with SRQ %v, and room for %d completions, want the shared one, and 64", conn.QP().SRQ(), conn.RecvCQ().Cap())
		}
		if err := client.say(ctx, text); err != nil {
			t.Fatal(err)
		}
		var wc [1]uverbs.WC
		if _, err := conn.RecvCQ().Wait(ctx, wc[:]); err != nil {
			t.Fatal(err)
		}
		id := wc[0].ID
		if got := string(mr.Bytes()[id*slotSize:][:wc[0].ByteLen]); got != text || seen[id] {
			t.Errorf("got %q in receive %d, want %q in one that is free", got, id, text)
		}
		seen[id] = true
	}
	l2 := mustListen(t, k, "10.9.0.2:7174", &rdmacm.Options{SRQ: srq})
	dialled := make(chan error)
	go func() {
		_, err := rdmacm.Dial(ctx, "10.9.0.2:7174", options(k, nil))
		dialled <- err
	}()
	_, err = l2.Accept(ctx)
	mustBe(t, "another device", err, rdmacm.ErrInvalid, "protection domain")
	mustBe(t, "its client", <-dialled, syscall.ECONNREFUSED)
}

// The client hears that the server receives from a shared receive queue.
func TestSharedReceiveQueueIsTold(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	ch, id := rawClient(t, k)
	devs, err := uverbs.Devices(uverbs.WithSystem(k.System()))
	if err != nil {
		t.Fatal(err)
	}
	dev, err := devs[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "context", dev.Close)
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "protection domain", pd.Close)
	srq, err := pd.CreateSRQ(&uverbs.SRQInitAttr{MaxWR: 4, MaxSGE: 1})
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "shared receive queue", srq.Close)
	l := mustListen(t, k, server, &rdmacm.Options{SRQ: srq})
	served := make(chan error)
	ctx := testContext(t)
	go func() {
		c, err := l.Accept(ctx)
		if err == nil {
			<-c.Done()
			err = c.Close()
		}
		served <- err
	}()
	if err := id.Connect(rdmacm.ConnParam{}); err != nil {
		t.Fatal(err)
	}
	if ev := expect(t, ch, rdmacm.EventEstablished); !ev.Conn.SRQ {
		t.Error("the client does not hear of it")
	}
	if err := id.Disconnect(); err != nil {
		t.Fatal(err)
	}
	expect(t, ch, rdmacm.EventDisconnected)
	if err := <-served; err != nil {
		t.Error(err)
	}
}

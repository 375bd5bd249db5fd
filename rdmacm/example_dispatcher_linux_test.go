package rdmacm_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// dispatcher is a messenger as storage servers have it: all that happens, on an event channel
// and on several completion channels, ends in one goroutine, which has all the state and so
// needs no lock. The goroutines that wait do nothing else; they cost no OS thread.
type dispatcher struct {
	events *rdmacm.EventChannel
	work   chan func() error
	pumps  sync.WaitGroup
	stop   context.CancelFunc

	// Of the device, made with the first connection; all connections share it.
	pd             *uverbs.PD
	sendCh, recvCh *uverbs.CompChannel
	sendCQ, recvCQ *uverbs.CQ
	srq            *uverbs.SRQ
	mr             *uverbs.MR

	conns    map[uint32]*connection // by queue pair number, which completions carry
	accepted int
	ended    int
	echoed   int
}

// connection is one client.
type connection struct {
	id      *rdmacm.ID
	sends   int  // that have not completed
	leaving bool // it ends when they have
}

const (
	messages    = 64  // receives in the shared receive queue
	messageSize = 256 // bytes of each
)

// pump hands what next waits for to the dispatcher, until it fails.
func (d *dispatcher) pump(next func() (func() error, error)) {
	d.pumps.Go(func() {
		for {
			do, err := next()
			if err != nil {
				return // the context has ended, or what it waits for is closed
			}
			d.work <- do
		}
	})
}

func (d *dispatcher) pumpEvents(ctx context.Context) {
	d.pump(func() (func() error, error) {
		ev, err := d.events.NextEvent(ctx)
		return func() error { return d.event(ctx, ev) }, err
	})
}

// pumpCompletions waits for one completion channel. The queue is armed by the dispatcher when
// it has found it empty, so there is one notification for any number of completions.
func (d *dispatcher) pumpCompletions(ctx context.Context, ch *uverbs.CompChannel, handle func(*uverbs.WC) error) {
	d.pump(func() (func() error, error) {
		cq, err := ch.NextEvent(ctx)
		return func() error { return drain(cq, handle) }, err
	})
}

// drain takes all completions out of a queue, arms it, and looks once more: what came in
// between would not be notified.
func drain(cq *uverbs.CQ, handle func(*uverbs.WC) error) error {
	var wcs [16]uverbs.WC
	for armed := false; ; {
		n, err := cq.Poll(wcs[:])
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			if err := handle(&wcs[i]); err != nil {
				return err
			}
		}
		switch {
		case n > 0:
			armed = false
		case armed:
			return nil
		default:
			if err := cq.Arm(false); err != nil {
				return err
			}
			armed = true
		}
	}
}

// device makes what all connections share.
func (d *dispatcher) device(ctx context.Context, id *rdmacm.ID) error {
	if d.pd != nil {
		return nil
	}
	dev, err := id.Context()
	if err != nil {
		return err
	}
	if d.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	if d.mr, err = d.pd.AllocMR(messages*messageSize, uverbs.AccessLocalWrite); err != nil {
		return err
	}
	if d.srq, err = d.pd.CreateSRQ(&uverbs.SRQInitAttr{MaxWR: messages, MaxSGE: 1}); err != nil {
		return err
	}
	for i := range messages {
		if err := d.postRecv(uint64(i)); err != nil {
			return err
		}
	}
	if d.sendCh, d.sendCQ, err = newQueue(dev); err != nil {
		return err
	}
	if d.recvCh, d.recvCQ, err = newQueue(dev); err != nil {
		return err
	}
	d.pumpCompletions(ctx, d.sendCh, d.sent)
	d.pumpCompletions(ctx, d.recvCh, d.received)
	return nil
}

// newQueue makes an armed completion queue with a completion channel.
func newQueue(dev *uverbs.Context) (*uverbs.CompChannel, *uverbs.CQ, error) {
	ch, err := dev.NewCompChannel()
	if err != nil {
		return nil, nil, err
	}
	cq, err := dev.CreateCQ(2*messages, ch)
	if err != nil {
		return nil, nil, err
	}
	return ch, cq, cq.Arm(false)
}

func (d *dispatcher) postRecv(slot uint64) error {
	_, err := d.srq.PostRecv([]uverbs.RecvWR{{ID: slot, SGL: []uverbs.SGE{d.mr.SGE(int(slot)*messageSize, messageSize)}}})
	return err
}

// event is one of the event channel.
func (d *dispatcher) event(ctx context.Context, ev *rdmacm.Event) error {
	switch ev.Type {
	case rdmacm.EventConnectRequest:
		if err := d.device(ctx, ev.ID); err != nil {
			return err
		}
		qp, err := ev.ID.CreateQP(d.pd, &uverbs.QPInitAttr{
			SendCQ: d.sendCQ, RecvCQ: d.recvCQ, SRQ: d.srq, Cap: uverbs.QPCap{MaxSendWR: messages, MaxSendSGE: 1},
		})
		if err != nil {
			return err
		}
		c := &connection{id: ev.ID}
		d.conns[qp.Num()] = c
		if err := ev.ID.Accept(rdmacm.ConnParam{}); err != nil {
			return d.leave(c) // that client's trouble: it has given up, for one
		}
	case rdmacm.EventEstablished:
		d.accepted++
	case rdmacm.EventDisconnected, rdmacm.EventRejected, rdmacm.EventUnreachable, rdmacm.EventConnectError:
		if c := d.conns[ev.ID.QP().Num()]; c != nil {
			return d.leave(c)
		}
	}
	return nil
}

// leave ends a connection without losing a slot: its sends are flushed, and what it has received
// is taken out of the queue, as completions that nobody has polled go with the queue pair.
func (d *dispatcher) leave(c *connection) error {
	if c.leaving {
		return nil
	}
	c.leaving = true
	_ = c.id.Disconnect() // fails where there is no connection yet
	if err := drain(d.recvCQ, d.received); err != nil {
		return err
	}
	return d.hangUp(c)
}

// hangUp closes a connection that leaves, once its last send has completed.
func (d *dispatcher) hangUp(c *connection) error {
	if !c.leaving || c.sends > 0 {
		return nil
	}
	d.ended++
	delete(d.conns, c.id.QP().Num())
	return c.id.Close()
}

// received: the message is sent back from where it lies.
func (d *dispatcher) received(wc *uverbs.WC) error {
	c := d.conns[wc.QPNum]
	if wc.Err() != nil || c == nil || c.leaving {
		return d.postRecv(wc.ID)
	}
	_, err := c.id.QP().PostSend([]uverbs.SendWR{{
		ID: wc.ID, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{d.mr.SGE(int(wc.ID)*messageSize, int(wc.ByteLen))},
	}})
	if err != nil { // one client's trouble
		return errors.Join(d.postRecv(wc.ID), d.leave(c))
	}
	c.sends++
	d.echoed++
	return nil
}

// sent: the memory is free for another message.
func (d *dispatcher) sent(wc *uverbs.WC) error {
	c := d.conns[wc.QPNum]
	c.sends--
	return errors.Join(d.postRecv(wc.ID), d.hangUp(c))
}

// run is the dispatcher's goroutine. It ends when so many connections have come and gone.
func (d *dispatcher) run(connections int) error {
	for d.ended < connections {
		if err := (<-d.work)(); err != nil {
			return err
		}
	}
	return nil
}

// close stops the pumps, then takes all down, in the opposite order.
func (d *dispatcher) close() error {
	d.stop()
	go func() {
		d.pumps.Wait()
		close(d.work)
	}()
	for range d.work { // what is left does not matter any more
	}
	return errors.Join(d.srq.Close(), d.sendCQ.Close(), d.recvCQ.Close(), d.sendCh.Close(), d.recvCh.Close(),
		d.mr.Close(), d.pd.Close())
}

// client sends a few messages and waits for each to come back.
func echoClient(ctx context.Context, name string, o rdmacm.Options) error {
	var mr *uverbs.MR
	o.Prepare = func(c *rdmacm.Conn) (err error) {
		mr, err = c.AllocMR(2*messageSize, uverbs.AccessLocalWrite)
		return err
	}
	c, err := rdmacm.Dial(ctx, "10.9.0.1:7174", &o)
	if err != nil {
		return err
	}
	defer c.Close()
	var wc [1]uverbs.WC
	for i := range 2 {
		text := fmt.Sprintf("%s %d", name, i)
		n := copy(mr.Bytes(), text)
		if _, err := c.QP().PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{mr.SGE(messageSize, messageSize)}}}); err != nil {
			return err
		}
		_, err := c.QP().PostSend([]uverbs.SendWR{{Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{mr.SGE(0, n)}}})
		if err != nil {
			return err
		}
		for _, cq := range []*uverbs.CQ{c.SendCQ(), c.RecvCQ()} {
			if _, err := cq.Wait(ctx, wc[:]); err != nil {
				return err
			}
			if err := wc[0].Err(); err != nil {
				return err
			}
		}
		if got := string(mr.Bytes()[messageSize:][:wc[0].ByteLen]); got != text {
			return fmt.Errorf("got %q back, sent %q", got, text)
		}
	}
	return nil
}

// One goroutine for all connections: events of the connection manager, completions of sends
// and completions of receives come from a channel each, and are dispatched in one place. The
// connections share a protection domain, two completion queues and a shared receive queue.
func Example_dispatcher() {
	kernel := fakekernel.New(fakekernel.Options{}) // on a real kernel leave the option away
	defer kernel.Close()
	system := rdmacm.WithSystem(kernel.System())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	events, err := rdmacm.NewEventChannel(system)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := events.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(listener.Bind(netip.MustParseAddrPort("10.9.0.1:7174")), listener.Listen(16)); err != nil {
		log.Fatal(err)
	}
	d := &dispatcher{events: events, work: make(chan func() error), conns: map[uint32]*connection{}}
	pumps, stop := context.WithCancel(ctx)
	d.stop = stop
	d.pumpEvents(pumps)

	const clients = 3
	errs := make(chan error, clients)
	for i := range clients {
		go func() {
			errs <- echoClient(ctx, fmt.Sprintf("client %d", i), rdmacm.Options{System: []rdmacm.Option{system}})
		}()
	}
	if err := d.run(clients); err != nil {
		log.Fatal(err)
	}
	for range clients {
		if err := <-errs; err != nil {
			log.Fatal(err)
		}
	}
	if err := errors.Join(d.close(), listener.Close(), events.Close()); err != nil && !errors.Is(err, net.ErrClosed) {
		log.Fatal(err)
	}
	fmt.Printf("%d connections, %d messages\n", d.accepted, d.echoed)
	// Output: 3 connections, 6 messages
}

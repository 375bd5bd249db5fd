package rdmacm_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// A server answers one message, a client sends it. Both run here, on a fake kernel; on a
// real one leave the option System away.
func Example() {
	kernel := fakekernel.New(fakekernel.Options{})
	defer kernel.Close()
	system := []rdmacm.Option{rdmacm.WithSystem(kernel.System())}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	// Each end needs memory for a message to receive (first half) and one to send (second
	// half). The receive is posted before the peer can send.
	const half = 64
	memory := map[*rdmacm.Conn]*uverbs.MR{}
	prepare := func(c *rdmacm.Conn) error {
		mr, err := c.AllocMR(2*half, uverbs.AccessLocalWrite) // closed with the connection
		if err != nil {
			return err
		}
		memory[c] = mr
		_, err = c.QP().PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{mr.SGE(0, half)}}})
		return err
	}
	send := func(c *rdmacm.Conn, text string) error {
		n := copy(memory[c].Bytes()[half:], text)
		_, err := c.QP().PostSend([]uverbs.SendWR{{
			Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{memory[c].SGE(half, n)},
		}})
		if err != nil {
			return err
		}
		var wc [1]uverbs.WC
		if _, err = c.SendCQ().Wait(ctx, wc[:]); err == nil {
			err = wc[0].Err()
		}
		return err
	}
	receive := func(c *rdmacm.Conn) (string, error) {
		var wc [1]uverbs.WC
		_, err := c.RecvCQ().Wait(ctx, wc[:])
		if err == nil {
			err = wc[0].Err()
		}
		return string(memory[c].Bytes()[:wc[0].ByteLen]), err
	}

	listener, err := rdmacm.Listen(ctx, "10.9.0.1:7174", &rdmacm.Options{Prepare: prepare, System: system})
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	served := make(chan error)
	go func() {
		conn, err := listener.Accept(ctx)
		if err != nil {
			served <- err
			return
		}
		question, err := receive(conn)
		if err == nil {
			fmt.Println("server got:", question)
			err = send(conn, "hello, client")
		}
		<-conn.Done() // the client has its answer and leaves
		served <- errors.Join(err, conn.Close())
	}()

	conn, err := rdmacm.Dial(ctx, "10.9.0.1:7174", &rdmacm.Options{Prepare: prepare, System: system})
	if err != nil {
		log.Fatal(err)
	}
	if err := send(conn, "hello, server"); err != nil {
		log.Fatal(err)
	}
	answer, err := receive(conn)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("client got:", answer)
	if err := conn.Close(); err != nil {
		log.Fatal(err)
	}
	if err := <-served; err != nil {
		log.Fatal(err)
	}
	// Output:
	// server got: hello, server
	// client got: hello, client
}

// node is one end of the step-by-step examples. The numbers are those of the steps in
// docs/jverbs-flow.md.
type node struct {
	id      *rdmacm.ID
	pd      *uverbs.PD
	channel *uverbs.CompChannel
	cq      *uverbs.CQ
	qp      *uverbs.QP
	mr      *uverbs.MR
}

// newNode makes all that a connection needs, on the device of an id that has one.
func newNode(id *rdmacm.ID) (*node, error) {
	n := &node{id: id}
	// 6 device
	ctx, err := id.Context()
	if err != nil {
		return nil, err
	}
	// 7 protection domain
	if n.pd, err = ctx.AllocPD(); err != nil {
		return nil, err
	}
	// 8 completion channel
	if n.channel, err = ctx.NewCompChannel(); err != nil {
		return nil, err
	}
	// 9 completion queue
	if n.cq, err = ctx.CreateCQ(16, n.channel); err != nil {
		return nil, err
	}
	// 10 notification
	// It is left to Wait, see receive.

	// 11 queue pair
	n.qp, err = id.CreateQP(n.pd, &uverbs.QPInitAttr{
		SendCQ: n.cq, RecvCQ: n.cq,
		Cap: uverbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return nil, err
	}
	// 12 memory region
	if n.mr, err = n.pd.AllocMR(4096, uverbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	// 13 first receive
	_, err = n.qp.PostRecv([]uverbs.RecvWR{{ID: 1, SGL: []uverbs.SGE{n.mr.SGE(0, 2048)}}})
	return n, err
}

func (n *node) send(text string) error {
	size := copy(n.mr.Bytes()[2048:], text)
	_, err := n.qp.PostSend([]uverbs.SendWR{{
		ID: 2, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{n.mr.SGE(2048, size)},
	}})
	return err
}

// receive processes completions until the receive is among them. Wait polls, and arms the
// queue and sleeps when there is nothing. The completion of a send may come before or after.
func (n *node) receive(ctx context.Context) (string, error) {
	wcs := make([]uverbs.WC, 4)
	for {
		got, err := n.cq.Wait(ctx, wcs)
		if err != nil {
			return "", err
		}
		for _, wc := range wcs[:got] {
			if err := wc.Err(); err != nil {
				return "", err
			}
			if wc.ID == 1 {
				return string(n.mr.Bytes()[:wc.ByteLen]), nil
			}
		}
	}
}

// close takes everything down in the opposite order. The id closes the queue pair too.
func (n *node) close() error {
	return errors.Join(
		// 1 queue pair
		n.qp.Close(),
		// 2 memory region
		n.mr.Close(),
		// 3 completion queue
		n.cq.Close(),
		// 4 completion channel
		n.channel.Close(),
		// 5 protection domain
		n.pd.Close(),
		// 6 id
		n.id.Close(),
	)
}

func exampleServer(ctx context.Context, ready chan<- struct{}, opts ...rdmacm.Option) error {
	// 1 event channel
	events, err := rdmacm.NewEventChannel(opts...)
	if err != nil {
		return err
	}
	defer events.Close()
	// 2 connection id
	listener, err := events.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		return err
	}
	defer listener.Close()
	// 3 address
	if err := listener.Bind(netip.MustParseAddrPort("10.9.0.1:7174")); err != nil {
		return err
	}
	// 4 route
	if err := listener.Listen(16); err != nil {
		return err
	}
	close(ready)

	var n *node
	for {
		ev, err := events.NextEvent(ctx)
		if err != nil {
			return err
		}
		if ev.Err != nil {
			return ev.Err
		}
		switch ev.Type {
		case rdmacm.EventConnectRequest:
			// 5 request
			// Its ev.ID is a new id.
			if n, err = newNode(ev.ID); err != nil {
				return err
			}
			// 14 connect
			err = ev.ID.Accept(rdmacm.ConnParam{})
		case rdmacm.EventEstablished:
			// 15 transfer
			var question string
			if question, err = n.receive(ctx); err == nil {
				fmt.Println("server got:", question)
				err = n.send("hello, client")
			}
		case rdmacm.EventDisconnected:
			// 16 disconnect
			// Closing the id of the event in hand is fine.
			return n.close()
		}
		if err != nil {
			return err
		}
	}
}

func exampleClient(ctx context.Context, opts ...rdmacm.Option) error {
	// 1 event channel
	events, err := rdmacm.NewEventChannel(opts...)
	if err != nil {
		return err
	}
	defer events.Close()
	// 2 connection id
	id, err := events.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		return err
	}
	// 3 address
	err = id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort("10.9.0.1:7174"), 2*time.Second)
	if err != nil {
		return err
	}
	var n *node
	for {
		ev, err := events.NextEvent(ctx)
		if err != nil {
			return err
		}
		if ev.Err != nil {
			return ev.Err
		}
		switch ev.Type {
		case rdmacm.EventAddrResolved:
			// 4 route
			err = id.ResolveRoute(2 * time.Second)
		case rdmacm.EventRouteResolved:
			if n, err = newNode(id); err != nil {
				return err
			}
			// 14 connect
			err = id.Connect(rdmacm.ConnParam{})
		case rdmacm.EventEstablished:
			// 15 transfer
			if err = n.send("hello, server"); err != nil {
				return err
			}
			var answer string
			if answer, err = n.receive(ctx); err == nil {
				fmt.Println("client got:", answer)
				// 16 disconnect
				err = id.Disconnect()
			}
		case rdmacm.EventDisconnected:
			return n.close()
		}
		if err != nil {
			return err
		}
	}
}

// The steps one by one, on one event channel at each end: see the package's documentation.
func ExampleEventChannel() {
	kernel := fakekernel.New(fakekernel.Options{}) // on a real kernel leave the option away
	defer kernel.Close()
	system := rdmacm.WithSystem(kernel.System())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	ready, served := make(chan struct{}), make(chan error)
	go func() { served <- exampleServer(ctx, ready, system) }()
	<-ready
	if err := exampleClient(ctx, system); err != nil {
		log.Fatal(err)
	}
	if err := <-served; err != nil {
		log.Fatal(err)
	}
	// Output:
	// server got: hello, server
	// client got: hello, client
}

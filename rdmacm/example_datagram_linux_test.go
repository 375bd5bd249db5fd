package rdmacm_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// datagramBox is memory for one datagram to receive and one to send.
type datagramBox struct {
	mr *uverbs.MR
}

const datagramSize = uverbs.GRHSize + 256

// prepare is to be Options.Prepare. A datagram is received behind 40 bytes of header.
func (b *datagramBox) prepare(c *rdmacm.Conn) error {
	var err error
	if b.mr, err = c.AllocMR(2*datagramSize, uverbs.AccessLocalWrite); err != nil {
		return err
	}
	_, err = c.QP().PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{b.mr.SGE(0, datagramSize)}}})
	return err
}

func (b *datagramBox) send(ctx context.Context, c *rdmacm.Conn, to uverbs.Dest, text string) error {
	n := copy(b.mr.Bytes()[datagramSize:], text)
	_, err := c.QP().PostSend([]uverbs.SendWR{{
		Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{b.mr.SGE(datagramSize, n)}, Dest: to,
	}})
	if err != nil {
		return err
	}
	var wc [1]uverbs.WC
	if _, err := c.SendCQ().Wait(ctx, wc[:]); err != nil {
		return err
	}
	return wc[0].Err()
}

// receive returns the message, and the completion, which says who sent it.
func (b *datagramBox) receive(ctx context.Context, c *rdmacm.Conn) (string, *uverbs.WC, error) {
	var wc [1]uverbs.WC
	if _, err := c.RecvCQ().Wait(ctx, wc[:]); err != nil {
		return "", nil, err
	}
	return string(b.mr.Bytes()[uverbs.GRHSize:max(wc[0].ByteLen, uverbs.GRHSize)]), &wc[0], wc[0].Err()
}

// A datagram service: one queue pair, found by address and port, and an answer to whoever
// asked.
func ExampleListenDatagram() {
	kernel := fakekernel.New(fakekernel.Options{})
	defer kernel.Close()
	system := []rdmacm.Option{rdmacm.WithSystem(kernel.System())} // on a real kernel leave it away
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	var in, out datagramBox
	service, err := rdmacm.ListenDatagram(ctx, "10.9.0.1:7174", &rdmacm.Options{Prepare: in.prepare, System: system})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()
	client, err := rdmacm.ResolveDatagram(ctx, "10.9.0.1:7174", &rdmacm.Options{Prepare: out.prepare, System: system})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	if err := out.send(ctx, client.Conn, client.Dest(), "what time is it?"); err != nil {
		log.Fatal(err)
	}
	question, wc, err := in.receive(ctx, service.Conn)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("service got:", question)

	// The header and the completion lead back to the sender.
	back, err := service.PD().CreateAHFromWC(wc, in.mr.Bytes()[:uverbs.GRHSize], 1)
	if err != nil {
		log.Fatal(err)
	}
	defer back.Close()
	if err := in.send(ctx, service.Conn, back.Dest(wc.SrcQP, rdmacm.DefaultQKey), "high time"); err != nil {
		log.Fatal(err)
	}
	answer, _, err := out.receive(ctx, client.Conn)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("client got:", answer)
	// Output:
	// service got: what time is it?
	// client got: high time
}

// One message to all who are in a multicast group.
func ExampleJoinMulticast() {
	kernel := fakekernel.New(fakekernel.Options{Devices: make([]fakekernel.Device, 2)})
	defer kernel.Close()
	system := []rdmacm.Option{rdmacm.WithSystem(kernel.System())} // on a real kernel leave it away
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	var box, unused datagramBox
	member, err := rdmacm.JoinMulticast(ctx, "239.9.0.1", &rdmacm.Options{
		Source: netip.MustParseAddrPort("10.9.0.1:0"), Prepare: box.prepare, System: system,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer member.Close()
	sender, err := rdmacm.JoinMulticast(ctx, "239.9.0.1", &rdmacm.Options{
		Source: netip.MustParseAddrPort("10.9.0.2:0"), SendOnly: true, Prepare: unused.prepare, System: system,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sender.Close()

	if err := unused.send(ctx, sender.Conn, sender.Dest(), "hello, group"); err != nil {
		log.Fatal(err)
	}
	text, _, err := box.receive(ctx, member.Conn)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output: hello, group
}

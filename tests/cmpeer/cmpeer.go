// Package cmpeer plays the other end of the programs of rdmacm-utils (those of rdma-core 44,
// as in Debian 12): ucmatose, rdma_server and rdma_client, rdma_xserver and rdma_xclient,
// cmtime, udaddy and mckey. It is the Go side of interoperability tests of package rdmacm.
package cmpeer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/tests/pingpong/peer"
	"github.com/pureverbs/rdma/uverbs"
)

// Options are what all programs have in common.
type Options struct {
	Addr   netip.AddrPort  // where the server listens
	System []rdmacm.Option // another kernel than the running one
	Ready  chan<- struct{} // a server closes it when it listens
}

// ErrUnheard is a fault of siw, in all kernels up to 7.2 at least: while it accepts a
// connection it answers the client first, and only then watches for what the client sends. A
// client that is quick enough in between is not heard until it sends more, which the clients
// of these protocols do not. C programs hang in the same way.
var ErrUnheard = errors.New("the client's message was not heard: siw missed it, or there was none")

// ErrTooEarly is another: what the side that accepts sends comes right behind its answer to
// the client, which siw takes for a part of that, and for wrong. iWARP forbids it for that
// reason, and ucmatose does it all the same.
var ErrTooEarly = errors.New("siw: the server's first message spoiled its answer")

// patience is how long the first message may take before something is done about that fault.
const patience = 3 * time.Second

// resolveTimeout is that of the C programs.
const resolveTimeout = 2 * time.Second

func iWARP(c *uverbs.Context) bool { return c.Device().Protocol() == "iw" }

func (o *Options) listening() {
	if o.Ready != nil {
		close(o.Ready)
	}
}

// listen makes an event channel with an id that listens.
func (o *Options) listen(owned *peer.Owned, ps rdmacm.PortSpace) (*rdmacm.EventChannel, error) {
	ch, err := rdmacm.NewEventChannel(o.System...)
	if ch, err = peer.Own(owned, ch, err); err != nil {
		return nil, err
	}
	id, err := ch.NewID(ps)
	if id, err = peer.Own(owned, id, err); err != nil {
		return nil, err
	}
	if err := id.Bind(o.Addr); err != nil {
		return nil, err
	}
	if err := id.Listen(0); err != nil {
		return nil, err
	}
	o.listening()
	return ch, nil
}

// loop hands the events of a channel on, until done.
func loop(ctx context.Context, ch *rdmacm.EventChannel, done func() bool, handle func(*rdmacm.Event) error) error {
	for !done() {
		ev, err := ch.NextEvent(ctx)
		if err != nil {
			return err
		}
		if ev.Err != nil {
			return fmt.Errorf("%v: %w", ev.Type, tooEarly(ev))
		}
		if err := handle(ev); err != nil {
			return err
		}
	}
	return nil
}

// tooEarly finds out if it is that: EINVAL says that siw could not read the answer.
func tooEarly(ev *rdmacm.Event) error {
	if d, err := ev.ID.Device(); err != nil || d.Protocol() != "iw" {
		return ev.Err
	}
	if ev.Type == rdmacm.EventConnectError && errors.Is(ev.Err, syscall.EINVAL) {
		return fmt.Errorf("%w (%w)", ErrTooEarly, ev.Err)
	}
	return ev.Err
}

// wait returns the next n completions of a queue, all of which have to be good.
func wait(ctx context.Context, cq *uverbs.CQ, n int) ([]uverbs.WC, error) {
	all := make([]uverbs.WC, n)
	for got := 0; got < n; {
		m, err := cq.Wait(ctx, all[got:])
		if err != nil {
			return all[:got], fmt.Errorf("after %d of %d completions: %w", got, n, err)
		}
		for i := range all[got : got+m] {
			if err := all[got+i].Err(); err != nil {
				return all[:got+i], err
			}
		}
		got += m
	}
	return all, nil
}

// pattern fills b with bytes that differ from message to message.
func pattern(b []byte, message int) []byte {
	for i := range b {
		b[i] = byte(i + 31*message + 7)
	}
	return b
}

// Pattern is what the message with a number holds that a Go peer sends.
func Pattern(size, message int) []byte { return pattern(make([]byte, size), message) }

package cmpeer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/tests/pingpong/peer"
	"github.com/pureverbs/rdma/uverbs"
)

// Matose is ucmatose: many connections on one event channel. When all are up the server sends
// messages on each, the client sends back as many, and the server disconnects.
//
// A C client receives all messages into the same memory, and sends from there: what comes
// back is the last one, again and again. A C server sends what its memory happens to hold,
// the same in each message.
type Matose struct {
	Options
	Fleet
	Migrate bool // moves its ids to another event channel before they are disconnected
}

// Serve serves as many connections as there are, and checks that what comes back is what
// was sent last.
func (m *Matose) Serve(ctx context.Context) (err error) {
	m.reset()
	var listener peer.Owned
	defer func() { err = errors.Join(err, m.close(), listener.Close()) }()
	ch, err := m.listen(&listener, rdmacm.PortSpaceTCP)
	if err != nil {
		return err
	}
	if err := loop(ctx, ch, m.all(up), m.serverEvent); err != nil {
		return err
	}
	if err := m.exchange(ctx); err != nil {
		return err
	}
	if ch, err = m.migrate(&listener, ch); err != nil {
		return err
	}
	for _, n := range m.order {
		if err := n.id.Disconnect(); err != nil {
			return err
		}
	}
	return loop(ctx, ch, m.all(gone), m.serverEvent)
}

// migrate returns the event channel that the connections are on from now on.
func (m *Matose) migrate(owned *peer.Owned, ch *rdmacm.EventChannel) (*rdmacm.EventChannel, error) {
	if !m.Migrate {
		return ch, nil
	}
	to, err := rdmacm.NewEventChannel(m.System...)
	if to, err = peer.Own(owned, to, err); err != nil {
		return nil, err
	}
	for _, n := range m.order {
		if err := n.id.Migrate(to); err != nil {
			return nil, err
		}
	}
	return to, nil
}

func (m *Matose) serverEvent(ev *rdmacm.Event) error {
	switch ev.Type {
	case rdmacm.EventConnectRequest:
		if len(m.order) == m.Connections {
			return errors.Join(fmt.Errorf("more than %d connections", m.Connections), ev.ID.Close())
		}
		if err := m.add(ev.ID).open(m.slots(), m.Size, uverbs.QPTypeRC); err != nil {
			return err
		}
		return ev.ID.Accept(rdmacm.ConnParam{})
	case rdmacm.EventEstablished:
		m.nodes[ev.ID].up = true
	case rdmacm.EventDisconnected:
		m.nodes[ev.ID].gone = true
	}
	return nil
}

// exchange is the server's part of the transfer: all sends first, then all receives.
func (m *Matose) exchange(ctx context.Context) error {
	if m.slots() == 0 {
		return nil
	}
	// On iWARP the side that accepted must not be the first to send. This protocol says so,
	// all the same: what comes right behind the answer to the client breaks the connection.
	if iWARP(m.order[0].pd.Context()) {
		time.Sleep(200 * time.Millisecond)
	}
	slots := slotsFrom(m.Messages, m.Messages)
	for c, n := range m.order {
		for i, slot := range slots {
			pattern(n.slot(slot), c*m.Messages+i)
		}
		if err := n.send(slots, uverbs.SendWR{Opcode: uverbs.OpSend}); err != nil {
			return err
		}
	}
	for _, n := range m.order {
		if _, err := wait(ctx, n.sendCQ, m.Messages); err != nil {
			return err
		}
	}
	return m.replies(ctx)
}

func (m *Matose) replies(ctx context.Context) error {
	for c, n := range m.order {
		replies, _, err := n.receive(ctx)
		if err != nil {
			return err
		}
		want := n.slot(2*m.Messages - 1)
		for i, got := range replies {
			if !bytes.Equal(got, want) {
				return fmt.Errorf("connection %d: reply %d is %x, want %x", c, i, got, want)
			}
		}
	}
	return nil
}

// Call is the client. It returns the messages of each connection.
func (m *Matose) Call(ctx context.Context) (messages [][][]byte, err error) {
	m.reset()
	var channels peer.Owned
	defer func() { err = errors.Join(err, m.close(), channels.Close()) }()
	ch, err := rdmacm.NewEventChannel(m.System...)
	if ch, err = peer.Own(&channels, ch, err); err != nil {
		return nil, err
	}
	if err := m.dial(ch, rdmacm.PortSpaceTCP, &m.Options); err != nil {
		return nil, err
	}
	if err := loop(ctx, ch, m.all(up), m.clientEvent); err != nil {
		return nil, err
	}
	if messages, err = m.reply(ctx); err != nil {
		return nil, err
	}
	if ch, err = m.migrate(&channels, ch); err != nil {
		return nil, err
	}
	return messages, loop(ctx, ch, m.all(gone), m.clientEvent)
}

func (m *Matose) clientEvent(ev *rdmacm.Event) error {
	n := m.nodes[ev.ID]
	switch ev.Type {
	case rdmacm.EventAddrResolved:
		return n.id.ResolveRoute(resolveTimeout)
	case rdmacm.EventRouteResolved:
		if err := n.open(m.slots(), m.Size, uverbs.QPTypeRC); err != nil {
			return err
		}
		return n.id.Connect(rdmacm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 5})
	case rdmacm.EventEstablished:
		n.up = true
	case rdmacm.EventDisconnected:
		n.gone = true
		return n.id.Disconnect()
	}
	return nil
}

// reply waits for all messages, and then sends the last one of each connection back. It does
// not wait for its sends: the server may leave before it has acknowledged the last one.
func (m *Matose) reply(ctx context.Context) ([][][]byte, error) {
	if m.slots() == 0 {
		return nil, nil
	}
	all := make([][][]byte, len(m.order))
	for i, n := range m.order {
		var err error
		if all[i], _, err = n.receive(ctx); err != nil {
			return nil, err
		}
	}
	slots := make([]int, m.Messages)
	for i := range slots {
		slots[i] = m.Messages - 1
	}
	for _, n := range m.order {
		if err := n.send(slots, uverbs.SendWR{Opcode: uverbs.OpSend}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

package rdmacm

import (
	"fmt"
	"net"
	"slices"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// Migrate moves the id to another event channel, for one to hand a connection that was
// accepted to the loop of another goroutine. Events that wait in the kernel move along, so
// does everything that the id has: queue pair, device, multicast groups, on a listener the
// requests that nobody has received. An event that was received before stays where it is.
//
// Readers of both channels are stopped for a moment, and go on by themselves. Who waits in an
// event loop of their own has to call [EventChannel.TryEvent] of the new channel once
// afterwards: the kernel does not make its descriptor readable for events that moved.
//
// Errors: ErrInvalid if another goroutine migrates it at the same time; net.ErrClosed.
// Source: rdma_migrate_id(3).
func (id *ID) Migrate(to *EventChannel) error {
	from := id.Channel()
	old, err := from.descriptor()
	if err != nil {
		return wrap(opMigrate, noAddr, err)
	}
	// What a reader has fetched and not handled yet would not find the id any more.
	resume := pauseBoth(from, to)
	defer resume()
	to.mu.Lock()
	defer to.mu.Unlock()
	return id.do(opMigrate, noAddr, func() error {
		switch {
		case to.closed:
			return net.ErrClosed
		case id.ch != from:
			return invalidError("another goroutine migrates it")
		case from == to:
			return nil
		}
		if err := to.adopt(id); err != nil {
			return err
		}
		var moved error
		err := old.Control(func(fd uintptr) { moved = id.move(from, to, uint32(fd)) })
		if moved != nil {
			return moved
		}
		return err
	})
}

// move does it, with the descriptor of the old channel. Readers are stopped, and the caller has
// the lock.
func (id *ID) move(from, to *EventChannel, fd uint32) error {
	if err := to.fetchID(id.kid, fd); err != nil {
		to.disown(id)
		return err
	}
	from.disown(id)
	id.ch = to
	to.takePending(from, id, fd)
	if id.listens {
		to.fetchRequests(id.uid, fd)
	}
	return nil
}

// pauseBoth stops the readers of two channels. The order is the same for all, so that two who
// migrate in opposite directions do not wait for each other.
func pauseBoth(a, b *EventChannel) (resume func()) {
	if a == b {
		return a.reader.pause()
	}
	if a.ids.first > b.ids.first {
		a, b = b, a
	}
	first, second := a.reader.pause(), b.reader.pause()
	return func() {
		second()
		first()
	}
}

// adopt enters the uids of an id that comes from another channel.
func (c *EventChannel) adopt(id *ID) error {
	ok := c.ids.adopt(id.uid, slot{id: id})
	for _, m := range id.groups {
		ok = ok && c.ids.adopt(m.uid, slot{id: id, group: m})
	}
	if !ok {
		c.disown(id)
		return fmt.Errorf("%w: its number is taken there, which happens once in four billion times", ErrBusy)
	}
	return nil
}

// disown forgets the uids of an id.
func (c *EventChannel) disown(id *ID) {
	c.ids.dropOf(id.uid, id)
	for _, m := range id.groups {
		c.ids.dropOf(m.uid, id)
	}
}

// fetchID moves an id of the kernel from the channel with that descriptor to c.
func (c *EventChannel) fetchID(kid, fd uint32) error {
	in := abi.RdmaUcmMigrateId{Id: kid, Fd: fd}
	var out abi.RdmaUcmMigrateResp // the number of events handed out, see getEvent
	return c.ask(abi.RDMA_USER_CM_CMD_MIGRATE_ID, uapi.Bytes(&in), 0, uapi.Bytes(&out))
}

// fetchRequests completes the migration of a listener: the kernel moves the requests that wait,
// but leaves their new ids with the old channel, where they would die with it. So all events up
// to there are fetched, for the next reader. The first request that came in after the
// migration, whose id is not with the old channel, ends it.
func (c *EventChannel) fetchRequests(uid uint64, fd uint32) {
	for {
		r := new(abi.RdmaUcmEventResp)
		if c.fetchEvent(nil, r) != nil { //nolint:staticcheck // nil: no waiting
			return
		}
		c.pending = append(c.pending, r)
		if EventType(r.Event) == EventConnectRequest && r.Uid == uid && c.fetchID(r.Id, fd) != nil {
			return
		}
	}
}

// takePending takes over what an earlier migration has fetched for the id.
func (c *EventChannel) takePending(from *EventChannel, id *ID, fd uint32) {
	var stay []*abi.RdmaUcmEventResp
	for _, r := range from.pending {
		if !id.owns(r.Uid) {
			stay = append(stay, r)
			continue
		}
		c.pending = append(c.pending, r)
		if EventType(r.Event) == EventConnectRequest {
			_ = c.fetchID(r.Id, fd) // answering the request shows it
		}
	}
	from.pending = stay
}

func (id *ID) owns(uid uint64) bool {
	return id.uid == uid || slices.ContainsFunc(id.groups, func(m *membership) bool { return m.uid == uid })
}

package uverbs

import (
	"context"
	"errors"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// AsyncEventType says what happened: enum ibv_event_type.
type AsyncEventType uint32

// The asynchronous events (IBTA volume 1, 11.6.3).
const (
	EventCQError AsyncEventType = iota
	EventQPFatal
	EventQPRequestError
	EventQPAccessError
	EventCommEstablished
	EventSQDrained
	EventPathMigrated
	EventPathMigrationError
	EventDeviceFatal
	EventPortActive
	EventPortError
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQError
	EventSRQLimitReached
	EventQPLastWQEReached
	EventClientReregister
	EventGIDChange
	EventWQFatal
)

var asyncNames = [...]string{
	"CQ error", "QP fatal", "QP request error", "QP access error", "communication established", "SQ drained",
	"path migrated", "path migration error", "device fatal", "port active", "port error", "LID change",
	"P_Key change", "SM change", "SRQ error", "SRQ limit reached", "QP last WQE reached", "client reregister",
	"GID change", "WQ fatal",
}

func (t AsyncEventType) String() string {
	if int(t) < len(asyncNames) {
		return asyncNames[t]
	}
	return "event " + utoa(uint32(t))
}

// AsyncEvent is news of an object or a port, outside the flow of completions. It is a copy:
// nothing has to be acknowledged, and closing the object it names never waits for it.
type AsyncEvent struct {
	Type AsyncEventType
	QP   *QP  // for events of a queue pair; nil if it is closed by now
	CQ   *CQ  // for events of a completion queue; nil if it is closed by now
	SRQ  *SRQ // for events of a shared receive queue; nil if it is closed by now
	Port int  // for events of a port
}

// NextAsyncEvent waits for the next asynchronous event. It returns when there is one, when
// ctx ends, or with net.ErrClosed when c is closed. Several goroutines may wait; each event
// goes to one of them. Source: ibv_get_async_event(3).
func (c *Context) NextAsyncEvent(ctx context.Context) (AsyncEvent, error) {
	var e abi.IbUverbsAsyncEventDesc
	n, err := c.async.Read(ctx, uapi.Bytes(&e))
	if err == nil && n != len(uapi.Bytes(&e)) {
		err = syscall.EIO
	}
	if err != nil {
		return AsyncEvent{}, wrap("wait for asynchronous event", c.device, err)
	}
	ev := AsyncEvent{Type: AsyncEventType(e.EventType)}
	switch ev.Type {
	case EventPortActive, EventPortError, EventLIDChange, EventPKeyChange, EventSMChange, EventClientReregister, EventGIDChange:
		ev.Port = int(e.Element)
		return ev, nil
	}
	switch o := c.objects.get(e.Element).(type) {
	case *QP:
		ev.QP = o
	case *CQ:
		ev.CQ = o
	case *SRQ:
		ev.SRQ = o
	}
	return ev, nil
}

func isEIO(err error) bool { return errors.Is(err, syscall.EIO) }

func isCanceled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

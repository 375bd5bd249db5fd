//go:build linux

package fakekernel

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// iwState is the state of an id's connection: enum iw_cm_state of core/iwcm.h.
type iwState uint8

const (
	iwNone iwState = iota // there was none yet
	iwIdle                // it is over, or never came about
	iwSent
	iwReceived
	iwEstablished
	iwClosing
)

// iwConn is what an id on an iWARP device keeps of its connection, in place of the link of
// an id on RoCE.
type iwConn struct {
	state    iwState
	end      *siwEnd
	answered chan struct{} // closed when a request has its answer
}

func (c *cmID) iwarp() bool { return c.dev.iwarp() }

// iwReplied ends the waiting for a reply; errno 0 is an acceptance. cma_iw_handler of
// core/cma.c, IW_CM_EVENT_CONNECT_REPLY.
func (c *cmID) iwReplied(errno unix.Errno, e *siwEnd, data []byte) {
	if c.iw.answered != nil {
		close(c.iw.answered)
		c.iw.answered = nil
	}
	c.iw.state = iwIdle
	param := private(abi.RdmaUcmConnParam{}, data, len(data))
	switch errno {
	case 0:
		c.iw.state = iwEstablished
		param.InitiatorDepth, param.ResponderResources = e.ird, e.ord
		c.push(EventEstablished, 0, param)
	case unix.ECONNRESET, unix.ECONNREFUSED:
		c.push(EventRejected, -int32(errno), param)
	case unix.ETIMEDOUT:
		c.push(EventUnreachable, -int32(errno), param)
	default:
		c.push(EventConnectError, -int32(errno), param)
	}
}

// iwClosed is the end of a connection: IW_CM_EVENT_CLOSE. Nothing like TIMEWAIT follows.
func (c *cmID) iwClosed() {
	c.iw.state = iwIdle
	c.push(EventDisconnected, 0, abi.RdmaUcmConnParam{})
}

// takeBack takes an event away that was not fetched yet.
func (c *cmID) takeBack(typ uint32) bool {
	i := slices.IndexFunc(c.file.queue, func(e cmEvent) bool { return e.owner == c && e.resp.Event == typ })
	if i < 0 {
		return false
	}
	c.file.queue = slices.Delete(c.file.queue, i, i+1)
	c.file.changed()
	return true
}

// iwDisconnect: core/iwcm.c, iw_cm_disconnect, which waits for an answer that is due.
func (c *cmID) iwDisconnect() error {
	c.settle()
	switch c.iw.state {
	case iwNone:
		return unix.EINVAL
	case iwEstablished:
		c.iw.state = iwClosing
		return c.iw.end.qp.enter(stateSQD)
	}
	return nil
}

// settle waits, without the lock, until a request has its answer.
func (c *cmID) settle() {
	k, answered := c.file.k, c.iw.answered
	if answered == nil {
		return
	}
	k.mu.Unlock()
	select {
	case <-answered:
	case <-k.stop:
	}
	k.mu.Lock()
}

// iwForget goes before the end of an id: no more events, and no request without an answer.
func (c *cmID) iwForget() {
	if c.iw.answered != nil {
		c.uid = 0
		c.settle()
	}
}

// iwHangUp is the end of the id: core/iwcm.c, destroy_cm_id.
func (c *cmID) iwHangUp() {
	switch e := c.iw.end; c.iw.state {
	case iwReceived:
		_ = e.reject(nil)
	case iwEstablished:
		_ = e.qp.enter(stateError)
	case iwSent: // the file is closed, which does not wait here
		e.close(unix.ETIMEDOUT, nil, true)
	}
}

// iwReject: core/iwcm.c, iw_cm_reject.
func (c *cmID) iwReject(data []byte) error {
	if c.iw.state != iwReceived {
		return unix.EINVAL
	}
	c.iw.state = iwIdle
	return c.iw.end.reject(data)
}

// iwNotify: rdma_notify has nothing to do on an RNIC.
func (c *cmID) iwNotify() error { return unless(c.iw.state != iwNone || c.hasCM()) }

// iwAttr tells how to modify a queue pair: core/iwcm.c, iw_cm_init_qp_attr. The way to RTS
// is the connection manager's, so there is nothing to do.
func (c *cmID) iwAttr(a *abi.IbUverbsQpAttr) error {
	a.PortNum = 1
	switch {
	case c.state == cmListen:
		return unix.EINVAL
	case c.iw.state == iwNone:
		a.QpAttrMask = maskState | maskAccess | maskPort
	case c.iw.state == iwClosing:
		return unix.EINVAL
	case a.QpState == stateInit, a.QpState == stateRTR:
		a.QpAttrMask = maskState | maskAccess | maskPort
		a.QpAccessFlags = abi.IB_UVERBS_ACCESS_REMOTE_WRITE | abi.IB_UVERBS_ACCESS_REMOTE_READ
	case a.QpState == stateRTS:
		a.QpAttrMask = maskPort
	default:
		return unix.EINVAL
	}
	return nil
}

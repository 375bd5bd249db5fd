//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// disconnect begins to end a connection, or answers the peer who began. It succeeds also
// where there is nothing to end any more: rdma_disconnect of core/cma.c.
func (f *cmFile) disconnect(c cmCall) error {
	in, err := body[abi.RdmaUcmDisconnect](c)
	if err != nil {
		return err
	}
	id, err := f.findBound(in.Id)
	switch {
	case err != nil:
		return err
	case !id.hasCM():
		return unix.EINVAL
	case id.iwarp():
		return id.iwDisconnect()
	}
	switch id.link {
	case linkEstablished:
		id.link = linkDreqSent
		if p := id.send(CMDisconnectRequest); p != nil {
			p.dreqReceived()
		}
		// A peer that never answers is given up after a while.
		f.k.after(20*f.k.opts.CMTimeout, func() { id.disconnected(linkDreqSent, -int32(unix.ETIMEDOUT)) })
	case linkDreqRcvd:
		id.timeWait()
		if p := id.send(CMDisconnectReply); p != nil {
			p.drepReceived()
		}
	}
	return nil
}

// dreqReceived is what the peer of one who disconnects hears.
func (c *cmID) dreqReceived() {
	switch c.link {
	case linkEstablished, linkRepSent, linkDreqSent:
		c.link = linkDreqRcvd
		c.leave(0)
	}
}

// drepReceived is the peer's answer.
func (c *cmID) drepReceived() { c.disconnected(linkDreqSent, 0) }

func (c *cmID) disconnected(from linkState, status int32) {
	if c.dead || c.link != from {
		return
	}
	c.timeWait()
	c.leave(status)
}

// leave reports the end once.
func (c *cmID) leave(status int32) {
	if c.state == cmConnect {
		c.state = cmDisconnect
		c.push(EventDisconnected, status, abi.RdmaUcmConnParam{})
	}
}

// timeWait waits until no packet of the connection can be under way.
func (c *cmID) timeWait() {
	c.link = linkTimeWait
	k := c.file.k
	k.after(k.opts.TimeWait, func() {
		if !c.dead && c.link == linkTimeWait {
			c.link = linkIdle
			if c.state == cmDisconnect {
				c.push(EventTimeWaitExit, 0, abi.RdmaUcmConnParam{})
			}
		}
	})
}

// Unplug takes a device away, as drivers do that can do so while it is open: calls fail
// with EIO, every context and every id hears of it, and the list does not show it.
func (k *Kernel) Unplug(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices {
		if d.Name == name && !d.dead {
			k.unplug(d)
			return true
		}
	}
	return false
}

func (k *Kernel) unplug(d *device) {
	d.dead = true
	for f := range k.files {
		v, ok := f.(*verbsFile)
		if !ok || v.dev != d {
			continue
		}
		for e := range v.events(false) {
			e.push(event{async: abi.IbUverbsAsyncEventDesc{EventType: asyncDeviceFatal}})
		}
		v.endEvents()
	}
	for _, c := range k.cm.ids {
		if c.dev == d {
			c.hangUp()
			c.link = linkIdle
			c.push(EventDeviceRemoval, 0, abi.RdmaUcmConnParam{})
			c.removed = true
		}
	}
}

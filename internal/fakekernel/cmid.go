//go:build linux

package fakekernel

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// cmState is the state of an id: enum rdma_cm_state of core/cma_priv.h.
type cmState uint8

const (
	cmIdle cmState = iota
	cmBound
	cmAddrQuery
	cmAddrResolved
	cmRouteResolved
	cmConnect
	cmDisconnect
	cmListen
)

// linkState is the state of the connection underneath: enum ib_cm_state.
type linkState uint8

const (
	linkIdle linkState = iota
	linkReqSent
	linkReqRcvd
	linkRepSent
	linkRepRcvd
	linkEstablished
	linkDreqSent
	linkDreqRcvd
	linkTimeWait
	linkSidrSent
	linkSidrRcvd
)

// cmID is a communication identifier.
type cmID struct {
	id      uint32
	uid     uint64 // 0: its events are dropped
	file    *cmFile
	ps      uint16 // as it was made
	qpType  uint8
	state   cmState
	link    linkState
	removed bool // the device is gone
	dead    bool // destroyed; timers look

	src, dst netip.AddrPort
	ib       *ibPair // addresses of family AF_IB, in place of src and dst but for the port
	scope    uint32  // of link-local addresses
	dev      *device
	bound    bool   // to a network interface, as RoCE needs it
	hops     uint8  // to the destination, as the route says; 0 if it was not asked
	bindPS   uint16 // the port space of the port
	port     bool   // holds its source port
	reuse    bool
	afOnly   bool
	afSet    bool // by the user
	slots    int  // listener: requests that may still be queued

	path       *pathRec // of the route
	tos        uint8
	timeout    uint8
	timeoutSet bool
	qkey       uint32 // of datagrams; 0 as long as there is none
	ece        abi.RdmaUcmEce
	groups     []*cmGroup

	peer      *cmID
	psn       uint32 // where the peer's sends to us begin
	remotePSN uint32
	remoteQPN uint32
	respRes   uint8 // READs that the peer may have in flight
	initDepth uint8 // READs that we may have in flight
	retry     uint8
	rnrRetry  uint8

	reported uint32

	iw iwConn // on iWARP, in place of the link and what belongs to it
}

func (k *Kernel) newID(f *cmFile, ps uint16, qpType uint8) *cmID {
	c := &cmID{file: f, ps: ps, qpType: qpType, bindPS: ps, psn: k.cm.nextPSN}
	k.cm.nextPSN = (k.cm.nextPSN*5 + 0x1235) & psnMask
	for k.cm.ids[k.cm.lowID] != nil {
		k.cm.lowID++
	}
	c.id = k.cm.lowID
	k.cm.ids[c.id] = c
	return c
}

func (f *cmFile) createID(c cmCall) error {
	if err := roomFor[abi.RdmaUcmCreateIdResp](c); err != nil {
		return err
	}
	in, err := body[abi.RdmaUcmCreateId](c)
	if err != nil {
		return err
	}
	typ, err := qpTypeOf(in.Ps, in.QpType)
	if err != nil {
		return err
	}
	id := f.k.newID(f, in.Ps, typ)
	id.uid = in.Uid
	if err := answer(c, in.Response, &abi.RdmaUcmCreateIdResp{Id: id.id}); err != nil {
		f.k.endID(id)
		return err
	}
	return nil
}

// qpTypeOf is the transport of a port space; only that of IB leaves it to the user.
func qpTypeOf(ps uint16, typ uint8) (uint8, error) {
	switch ps {
	case abi.RDMA_PS_TCP:
		return abi.IB_UVERBS_QPT_RC, nil
	case abi.RDMA_PS_UDP, abi.RDMA_PS_IPOIB:
		return abi.IB_UVERBS_QPT_UD, nil
	case abi.RDMA_PS_IB:
		return typ, nil
	}
	return 0, unix.EINVAL
}

func (f *cmFile) destroyID(c cmCall) error {
	if err := roomFor[abi.RdmaUcmDestroyIdResp](c); err != nil {
		return err
	}
	in, err := body[abi.RdmaUcmDestroyId](c)
	if err != nil {
		return err
	}
	id, err := f.find(in.Id)
	if err == unix.ENXIO {
		id, err = f.k.cm.ids[in.Id], nil
	}
	if err != nil {
		return err
	}
	id.iwForget()
	f.k.endID(id)
	return answer(c, in.Response, &abi.RdmaUcmDestroyIdResp{EventsReported: id.reported})
}

// endID destroys an id: the peer hears of it, events that were not fetched vanish, and
// with them the requests that they announced.
func (k *Kernel) endID(c *cmID) {
	if c.dead {
		return
	}
	c.dead = true
	delete(k.cm.ids, c.id)
	k.cm.lowID = min(k.cm.lowID, c.id)
	if c.port {
		k.cm.ports[c.src.Port()]--
	}
	c.hangUp()
	for _, g := range c.groups {
		delete(k.cm.groups, g.id)
	}
	for _, child := range c.file.forget(func(e cmEvent) bool { return e.owner == c }) {
		k.endID(child)
	}
}

// forget takes events away that were not fetched, and returns the ids that they announced.
func (f *cmFile) forget(match func(cmEvent) bool) (orphans []*cmID) {
	f.queue = slices.DeleteFunc(f.queue, func(e cmEvent) bool {
		if match(e) && e.child != nil {
			orphans = append(orphans, e.child)
		}
		return match(e)
	})
	f.changed()
	return orphans
}

// datagrams tells whether the id asks for services of datagrams.
func (c *cmID) datagrams() bool { return c.qpType == abi.IB_UVERBS_QPT_UD }

// hasCM tells whether there is an id of the layer below: struct rdma_id_private, cm_id.
func (c *cmID) hasCM() bool {
	return c.state == cmConnect || c.state == cmDisconnect || c.state == cmListen && c.dev != nil
}

// hangUp tells the peer that this end is going: cm_destroy_id of core/cm.c.
func (c *cmID) hangUp() {
	if c.iwarp() {
		c.iwHangUp()
	}
	switch c.link {
	case linkReqSent:
		c.sendReject(rejectTimeout, nil)
	case linkReqRcvd, linkRepSent, linkRepRcvd:
		c.sendReject(rejectConsumer, nil)
	case linkEstablished:
		if p := c.send(CMDisconnectRequest); p != nil {
			p.dreqReceived()
		}
	case linkDreqRcvd:
		if p := c.send(CMDisconnectReply); p != nil {
			p.drepReceived()
		}
	case linkSidrRcvd:
		c.sendSidr(sidrReject, 0, nil)
	}
}

// migrate moves an id, and its events, from another file to this one.
func (f *cmFile) migrate(c cmCall) error {
	in, err := body[abi.RdmaUcmMigrateId](c)
	if err != nil {
		return err
	}
	from, err := f.k.cmFileAt(int32(in.Fd))
	if err != nil {
		return err
	}
	id, err := from.find(in.Id)
	if err != nil {
		return err
	}
	var moved []cmEvent
	for _, e := range from.queue {
		if e.owner == id {
			moved = append(moved, e)
		}
	}
	from.queue = slices.DeleteFunc(from.queue, func(e cmEvent) bool { return e.owner == id })
	f.queue = append(f.queue, moved...)
	id.file = f
	from.changed()
	f.changed()
	return answer(c, in.Response, &abi.RdmaUcmMigrateResp{EventsReported: id.reported})
}

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
)

// cmID is a communication identifier.
type cmID struct {
	id      uint32
	uid     uint64 // 0: its events are dropped
	file    *cmFile
	ps      uint16
	state   cmState
	link    linkState
	removed bool // the device is gone
	dead    bool // destroyed; timers look

	src, dst netip.AddrPort
	scope    uint32 // of link-local addresses
	dev      *device
	port     bool // holds its source port
	reuse    bool
	afOnly   bool
	slots    int // listener: requests that may still be queued

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

func (k *Kernel) newID(f *cmFile, ps uint16) *cmID {
	c := &cmID{file: f, ps: ps, psn: k.cm.nextPSN}
	k.cm.nextPSN = (k.cm.nextPSN*5 + 0x1235) & psnMask
	for k.cm.ids[c.id] != nil {
		c.id++
	}
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
	switch in.Ps {
	case abi.RDMA_PS_TCP, abi.RDMA_PS_UDP, abi.RDMA_PS_IPOIB, abi.RDMA_PS_IB:
	default:
		return unix.EINVAL
	}
	id := f.k.newID(f, in.Ps)
	id.uid = in.Uid
	if err := answer(c, in.Response, &abi.RdmaUcmCreateIdResp{Id: id.id}); err != nil {
		f.k.endID(id)
		return err
	}
	return nil
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
	c.hangUp()
	var orphans []*cmID
	c.file.queue = slices.DeleteFunc(c.file.queue, func(e cmEvent) bool {
		if e.owner == c && e.child != nil {
			orphans = append(orphans, e.child)
		}
		return e.owner == c
	})
	for _, child := range orphans {
		k.endID(child)
	}
}

// other is the peer that a message reaches; nil if it reaches none.
func (c *cmID) other() *cmID {
	if c.peer == nil || c.peer.dead || c.file.k.cut {
		return nil
	}
	return c.peer
}

// hangUp tells the peer that this end is going: cm_destroy_id of core/cm.c.
func (c *cmID) hangUp() {
	if c.iwarp() {
		c.iwHangUp()
	}
	p := c.other()
	if p == nil {
		return
	}
	switch c.link {
	case linkReqSent:
		p.rejected(rejectTimeout, nil)
	case linkReqRcvd, linkRepSent, linkRepRcvd:
		p.rejected(rejectConsumer, nil)
	case linkEstablished:
		p.dreqReceived()
	case linkDreqRcvd:
		p.drepReceived()
	}
}

// migrate moves an id, and its events, from another file to this one.
func (f *cmFile) migrate(c cmCall) error {
	if err := roomFor[abi.RdmaUcmMigrateResp](c); err != nil {
		return err
	}
	in, err := body[abi.RdmaUcmMigrateId](c)
	if err != nil {
		return err
	}
	from, ok := f.k.fds[int32(in.Fd)].(*cmFile)
	if !ok {
		return unix.EINVAL
	}
	id, err := from.find(in.Id)
	if err != nil {
		return err
	}
	for _, e := range from.queue {
		if e.owner == id {
			f.queue = append(f.queue, e)
		}
	}
	from.queue = slices.DeleteFunc(from.queue, func(e cmEvent) bool { return e.owner == id })
	id.file = f
	f.signal()
	return answer(c, in.Response, &abi.RdmaUcmMigrateResp{EventsReported: id.reported})
}

func (f *cmFile) setOption(c cmCall) error {
	in, err := body[abi.RdmaUcmSetOption](c)
	if err != nil {
		return err
	}
	id, err := f.find(in.Id)
	if err != nil {
		return err
	}
	val := make([]byte, min(in.Optlen, uint32(pageSize)))
	if err := copyIn(val, in.Optval); err != nil {
		return err
	}
	switch {
	case in.Level == abi.RDMA_OPTION_IB && in.Optname == abi.RDMA_OPTION_IB_PATH:
		return id.setPath(val)
	case in.Level != abi.RDMA_OPTION_ID:
		return unix.ENOSYS
	}
	return id.setIDOption(in.Optname, val)
}

func (c *cmID) setIDOption(name uint32, val []byte) error {
	sizes := map[uint32]int{
		abi.RDMA_OPTION_ID_TOS: 1, abi.RDMA_OPTION_ID_REUSEADDR: 4,
		abi.RDMA_OPTION_ID_AFONLY: 4, abi.RDMA_OPTION_ID_ACK_TIMEOUT: 1,
	}
	size, ok := sizes[name]
	switch {
	case !ok:
		return unix.ENOSYS
	case len(val) != size:
		return unix.EINVAL
	case name == abi.RDMA_OPTION_ID_REUSEADDR:
		c.reuse = load[uint32](val) != 0
	case name == abi.RDMA_OPTION_ID_AFONLY:
		if c.state != cmIdle && c.state != cmBound {
			return unix.EINVAL
		}
		c.afOnly = load[uint32](val) != 0
	}
	return nil
}

//go:build linux

package fakekernel

import (
	"net/netip"
	"slices"

	"github.com/pureverbs/rdma/abi"
)

// CM is the connection manager, for tests that look at it or make trouble.
type CM struct{ k *Kernel }

// CM returns the kernel's connection manager.
func (k *Kernel) CM() CM { return CM{k} }

// CMID describes an id. State is that of the id, and Link that of its connection, as the
// kernel's source calls them, in lower case: "addr_resolved", "rep_sent".
type CMID struct {
	ID          uint32
	UID         uint64
	Src, Dst    netip.AddrPort
	Listens     bool
	Datagrams   bool
	State, Link string
}

func (c *cmID) describe() CMID {
	return CMID{
		ID: c.id, UID: c.uid, Src: c.src, Dst: c.dst, Listens: c.state == cmListen, Datagrams: c.datagrams(),
		State: [...]string{"idle", "addr_bound", "addr_query", "addr_resolved", "route_resolved", "connect", "disconnect", "listen"}[c.state],
		Link: [...]string{"idle", "req_sent", "req_rcvd", "rep_sent", "rep_rcvd", "established", "dreq_sent", "dreq_rcvd",
			"timewait", "sidr_req_sent", "sidr_req_rcvd"}[c.link],
	}
}

// IDs lists the ids of all files, in the order of their numbers.
func (m CM) IDs() []CMID {
	m.k.mu.Lock()
	defer m.k.mu.Unlock()
	var list []CMID
	for _, c := range m.k.sortedIDs() {
		list = append(list, c.describe())
	}
	return list
}

func (k *Kernel) sortedIDs() []*cmID {
	var list []*cmID
	for _, c := range k.cm.ids {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *cmID) int { return int(a.id) - int(b.id) })
	return list
}

// RaiseCM queues an event, of any type and with any status (a negative errno, or the reason
// of a rejection) and private data, for every id that match accepts, whatever state it is
// in, and returns for how many. Ids whose user has not given them a uid have no events.
//
// The event is all that happens, with three exceptions: CONNECT_REQUEST brings the id of a
// request that nobody made, DEVICE_REMOVAL ends the id as the kernel does, and the events of
// multicast name the groups that the id has joined, one event for each, if there are any.
func (k *Kernel) RaiseCM(match func(CMID) bool, typ uint32, status int32, data []byte) (raised int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.sortedIDs() {
		if c.uid != 0 && match(c.describe()) {
			c.raise(typ, status, data)
			raised++
		}
	}
	return raised
}

func (c *cmID) raise(typ uint32, status int32, data []byte) {
	param := private(abi.RdmaUcmConnParam{}, data, len(data))
	switch {
	case typ == EventConnectRequest:
		c.raiseRequest(status, param)
	case (typ == EventMulticastJoin || typ == EventMulticastError) && len(c.groups) > 0:
		for _, g := range c.groups {
			g.push(typ, status)
		}
	default:
		c.push(typ, status, param)
	}
	if typ == EventDeviceRemoval {
		c.hangUp()
		c.link, c.removed = linkIdle, true
	}
}

// raiseRequest announces a request that nobody waits for an answer to.
func (c *cmID) raiseRequest(status int32, param abi.RdmaUcmConnParam) {
	child := c.file.k.newID(c.file, c.ps, c.qpType)
	child.state, child.link, child.bound = cmConnect, linkReqRcvd, true
	child.src, child.dst, child.dev = c.src, c.dst, c.dev
	if child.dev == nil {
		child.dev = c.file.k.devices[0]
	}
	if c.datagrams() {
		child.link = linkSidrRcvd
	}
	child.path = child.makePath()
	raw := bytesOf(&param)
	if ud := (abi.RdmaUcmUdParam{PrivateData: param.PrivateData, PrivateDataLen: param.PrivateDataLen}); c.datagrams() {
		raw = bytesOf(&ud)
	}
	c.announce(child, raw, abi.RdmaUcmEce{})
	c.file.queue[len(c.file.queue)-1].resp.Status = uint32(status)
}

// Inject is [Kernel.RaiseCM] for one id, a uid or not. It reports whether there is such an id.
func (m CM) Inject(id, typ uint32, status int32, data []byte) bool {
	m.k.mu.Lock()
	defer m.k.mu.Unlock()
	c := m.k.cm.ids[id]
	if c != nil {
		c.raise(typ, status, data)
	}
	return c != nil
}

// InjectRaw queues any event record on the file of an id. It counts on that id.
func (m CM) InjectRaw(id uint32, resp abi.RdmaUcmEventResp) bool {
	m.k.mu.Lock()
	defer m.k.mu.Unlock()
	c := m.k.cm.ids[id]
	if c == nil {
		return false
	}
	c.file.queue = append(c.file.queue, cmEvent{owner: c, resp: resp})
	c.file.changed()
	return true
}

// CMMessage is a message between the connection managers of two hosts.
type CMMessage uint8

// The messages. Those of datagrams are a request and a reply of their own.
const (
	CMRequest           CMMessage = iota // REQ
	CMReply                              // REP
	CMReadyToUse                         // RTU
	CMReject                             // REJ
	CMDisconnectRequest                  // DREQ
	CMDisconnectReply                    // DREP
	CMServiceRequest                     // SIDR_REQ
	CMServiceReply                       // SIDR_REP
)

type loss struct {
	match func(CMMessage, CMID) bool
}

// LoseCM loses every message on the wire that match accepts, and all its repetitions, until
// cancel is called; from is the id that sends it. So a host can die at any point: what it
// says from then on is lost, see also [Kernel.Cut], which loses all. The one who waits for
// the message learns of it as with the kernel: UNREACHABLE after [Options].CMTimeout, or
// DISCONNECTED with a time-out. match is called with the kernel's lock, and must not call it.
//
// siw's connections are TCP, where nothing is lost for good.
func (k *Kernel) LoseCM(match func(m CMMessage, from CMID) bool) (cancel func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := &loss{match}
	k.cm.losses = append(k.cm.losses, l)
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.cm.losses = slices.DeleteFunc(k.cm.losses, func(o *loss) bool { return o == l })
	}
}

// lost tells whether a message does not arrive.
func (k *Kernel) lost(m CMMessage, from *cmID) bool {
	return k.cut || slices.ContainsFunc(k.cm.losses, func(l *loss) bool { return l.match(m, from.describe()) })
}

// send is the peer that a message reaches; nil if it reaches none.
func (c *cmID) send(m CMMessage) *cmID {
	if c.peer == nil || c.peer.dead || c.file.k.lost(m, c) {
		return nil
	}
	return c.peer
}

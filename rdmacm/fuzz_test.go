package rdmacm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/uverbs"
)

// hostileCM is an rdma_cm file that hands out any records as events and any bytes as
// answers. It keeps the books of its ids. When it has no event GET_EVENT fails, so that
// nobody waits for ever.
type hostileCM struct {
	uapi.File
	t       *testing.T
	answers []byte // what is odd about the answers; sound ones when used up
	tame    bool

	events []abi.RdmaUcmEventResp
	kids   map[uint32]int  // live ids
	stuck  map[uint32]bool // what it refused to destroy
	uids   []uint64        // of all ids that ever were
	next   uint32
	ended  bool
}

func (k *hostileCM) byte() (b byte) {
	if len(k.answers) > 0 && !k.tame {
		b, k.answers = k.answers[0], k.answers[1:]
	}
	return b
}

func (k *hostileCM) Close() error {
	k.ended = true
	return nil
}

func (k *hostileCM) Write(_ context.Context, p []byte) (int, error) {
	cmd, body, size := binary.NativeEndian.Uint32(p), p[8:], int(binary.NativeEndian.Uint16(p[6:]))
	if k.ended {
		return 0, net.ErrClosed
	}
	if cmd == abi.RDMA_USER_CM_CMD_GET_EVENT {
		if len(k.events) == 0 {
			return 0, syscall.EIO
		}
		copy(memory(as[abi.RdmaUcmGetEvent](body).Response, size), uapi.Bytes(&k.events[0]))
		k.events = k.events[1:]
		return len(p), nil
	}
	if b := k.byte(); b >= 0xf0 {
		if cmd == abi.RDMA_USER_CM_CMD_DESTROY_ID {
			k.stuck[as[abi.RdmaUcmDestroyId](body).Id] = true
		}
		return 0, [...]error{syscall.EINVAL, syscall.ENODEV, syscall.EACCES, syscall.ENOMEM}[b&3]
	}
	k.carryOut(cmd, body, size)
	return len(p), nil
}

func (k *hostileCM) carryOut(cmd uint32, body []byte, size int) {
	switch cmd {
	case abi.RDMA_USER_CM_CMD_CREATE_ID:
		in := as[abi.RdmaUcmCreateId](body)
		k.next++
		k.kids[k.next]++
		k.uids = append(k.uids, in.Uid)
		copy(memory(in.Response, size), uapi.Bytes(&abi.RdmaUcmCreateIdResp{Id: k.next}))
	case abi.RDMA_USER_CM_CMD_DESTROY_ID:
		in := as[abi.RdmaUcmDestroyId](body)
		if k.kids[in.Id] == 0 {
			k.t.Errorf("id %d is destroyed and never was", in.Id)
		}
		if k.kids[in.Id]--; k.kids[in.Id] <= 0 {
			delete(k.kids, in.Id)
		}
	case abi.RDMA_USER_CM_CMD_ACCEPT:
		if in := as[abi.RdmaUcmAccept](body); in.Uid != 0 {
			k.uids = append(k.uids, in.Uid)
		}
	case abi.RDMA_USER_CM_CMD_JOIN_MCAST:
		in := as[abi.RdmaUcmJoinMcast](body)
		k.uids = append(k.uids, in.Uid)
		k.next++
		copy(memory(in.Response, size), uapi.Bytes(&abi.RdmaUcmCreateIdResp{Id: k.next}))
	case abi.RDMA_USER_CM_CMD_QUERY, abi.RDMA_USER_CM_CMD_INIT_QP_ATTR:
		// Both begin with the address of the answer. What the answers do not fill stays.
		out := memory(binary.NativeEndian.Uint64(body), size)
		k.answers = k.answers[copy(out, k.answers[:min(int(k.byte()), len(k.answers))]):]
	}
}

const (
	cmStep  = 12   // bytes of a step: what to do, and details
	maxStep = 2048 // bytes of all steps
)

// FuzzEvents hands any records to a channel, in any order, while a program does anything
// with its ids. Each call returns; each end of a connection is reported once; what an event
// says is what stood in the record; and every id that the kernel made is destroyed once.
func FuzzEvents(f *testing.F) {
	var all []byte
	for op := range cmOps {
		all = append(append(all, byte(op)), make([]byte, cmStep-1)...)
	}
	good := abi.RdmaUcmEventResp{Event: uint32(EventConnectRequest)}
	good.ParamConn().PrivateDataLen = 56
	copy(good.ParamConn().PrivateData[:], "hello")
	f.Add(all, uapi.Bytes(&good), []byte{})
	for i := range uint64(24) {
		r := rand.New(rand.NewPCG(i, 1))
		steps, params, answers := make([]byte, 60*cmStep), make([]byte, 336), make([]byte, 600)
		for j := range steps {
			steps[j] = byte(r.Uint32()) & byte(r.Uint32()|0x80)
		}
		for j := range params {
			params[j] = byte(r.Uint32())
		}
		for j := range answers {
			answers[j] = byte(r.UintN(0xf1))
		}
		f.Add(slices.Concat(all, steps), params, answers[:25*i])
	}
	f.Fuzz(func(t *testing.T, steps, params, answers []byte) {
		dog := time.AfterFunc(20*time.Second, func() { panic("the run does not end") })
		defer dog.Stop()
		k := &hostileCM{t: t, answers: answers, kids: map[uint32]int{}, stuck: map[uint32]bool{}}
		sys := &discover.System{
			Root: "/nonexistent", Netlink: func() (discover.Transport, error) { return nil, syscall.EPROTONOSUPPORT },
		}
		p := &cmProgram{t: t, k: k, params: params, reported: map[*ID]EventType{}, ch: &EventChannel{
			file: k, devs: devices{sys: sys}, reader: reader{turn: make(chan struct{}, 1), done: make(chan struct{})},
		}}
		for steps = steps[:min(len(steps), maxStep)]; len(steps) >= cmStep; steps = steps[cmStep:] {
			p.args = steps[1:cmStep]
			cmOps[int(steps[0])%len(cmOps)](p)
		}
		p.end()
	})
}

// cmProgram is a user of an event channel.
type cmProgram struct {
	t        *testing.T
	k        *hostileCM
	ch       *EventChannel
	params   []byte
	args     []byte // details of the present step
	ids      []*ID
	reported map[*ID]EventType // the end of a connection, if it was reported
}

var cmOps = []func(*cmProgram){
	func(p *cmProgram) {
		id, err := p.ch.NewID([...]PortSpace{PortSpaceTCP, PortSpaceUDP, PortSpaceIB, PortSpaceIPoIB}[p.args[0]&3])
		if p.check(err); (id == nil) != (err != nil) {
			p.t.Fatalf("got id %v and error %v", id, err)
		}
		if err == nil {
			p.ids = append(p.ids, id)
		}
	},
	use(func(p *cmProgram, id *ID) { p.check(id.Listen(1)) }),
	(*cmProgram).event, (*cmProgram).event, (*cmProgram).event, (*cmProgram).event,
	(*cmProgram).next, (*cmProgram).next,
	use(func(p *cmProgram, id *ID) { p.check(id.Connect(p.param())) }),
	use(func(p *cmProgram, id *ID) { p.check(id.Accept(p.param())) }),
	use(func(p *cmProgram, id *ID) { p.check(id.Reject(p.params[:min(len(p.params), int(p.args[1]))])) }),
	use(func(p *cmProgram, id *ID) { p.check(id.Disconnect()) }),
	use(func(p *cmProgram, id *ID) { p.check(errors.Join(id.Establish(), id.NotifyEstablished())) }),
	use(func(p *cmProgram, id *ID) {
		p.check(id.Bind(netip.MustParseAddrPort("10.9.0.1:0")))
		p.check(id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort("[::1]:7"), time.Second))
		p.check(id.ResolveRoute(time.Second))
	}),
	use(func(p *cmProgram, id *ID) {
		_, _ = id.LocalAddr().String(), id.RemoteAddr().String()
		if n := id.PortNum(); n < 0 || n > 255 {
			p.t.Errorf("port %d", n)
		}
		_, err := id.Device()
		p.check(err)
	}),
	use(func(p *cmProgram, id *ID) {
		a, mask, err := id.QPAttr(uverbs.QPState(p.args[1] & 7))
		p.check(err)
		_, _ = a.State.String(), mask.String()
	}),
	use(func(p *cmProgram, id *ID) {
		if err := id.JoinMulticast(testGroup, JoinFlags(p.args[1]&1), p); err == nil && !id.ps.datagrams() {
			p.t.Error("a connection is in a multicast group")
		}
	}),
	use(func(p *cmProgram, id *ID) { p.check(id.LeaveMulticast(testGroup)) }),
	use(func(p *cmProgram, id *ID) {
		paths, err := id.Path()
		p.check(err)
		recs, err := id.ServiceRecords()
		p.check(err)
		_, _, err = id.GIDs()
		p.check(err)
		if len(paths) > maxPaths || len(recs) > maxServices {
			p.t.Errorf("%d paths and %d services", len(paths), len(recs))
		}
		if len(paths) > 0 && (paths[0].FlowLabel >= 1<<20 || paths[0].SL >= 16) {
			p.t.Errorf("path %+v", paths[0])
		}
	}),
	use(func(p *cmProgram, id *ID) {
		p.check(errors.Join(id.SetTOS(p.args[1]), id.SetReuseAddr(true), id.SetAFOnly(true), id.SetAckTimeout(p.args[2]&31)))
		p.check(id.SetIBPath([]PathRecord{{Flags: PathFlags(p.args[3])}}))
		p.check(id.SetLocalECE(ECE{Options: uint32(p.args[4])}))
		p.check(id.RejectECE(nil))
		_, _ = id.RemoteECE(), id.LocalECE()
	}),
	use(func(p *cmProgram, id *ID) {
		p.check(id.ResolveService(Service{ID: uint64(p.args[1])}))
		p.check(id.WriteEvent(EventType(p.args[1]), 0, 0))
		p.check(id.BindIB(AddrIB{PKey: uint16(p.args[1])}))
		p.check(id.ResolveIB(nil, AddrIB{}, time.Second))
		_, _ = id.LocalIB(), id.RemoteIB()
	}),
	func(p *cmProgram) {
		ev, err := p.ch.TryEvent()
		if p.check(err); ev != nil && err != nil {
			p.t.Fatalf("got event %v and error %v", ev, err)
		}
		if ev != nil && ev.Type == EventConnectRequest {
			p.ids = append(p.ids, ev.ID)
		}
		if ev != nil {
			p.count(ev)
		}
	},
	use(func(p *cmProgram, id *ID) {
		p.check(id.Close())
		p.ids = slices.DeleteFunc(p.ids, func(e *ID) bool { return e == id })
		if err := errors.Join(id.Close(), id.Close()); err != nil {
			p.t.Errorf("closing again: %v", err)
		}
		if err := id.Listen(1); !errors.Is(err, net.ErrClosed) {
			p.t.Errorf("listen on a closed id: %v", err)
		}
	}),
}

// use runs f on an id, if there is one.
func use(f func(*cmProgram, *ID)) func(*cmProgram) {
	return func(p *cmProgram) {
		if len(p.ids) > 0 {
			f(p, p.ids[int(p.args[0])%len(p.ids)])
		}
	}
}

func (p *cmProgram) param() ConnParam {
	return ConnParam{
		PrivateData: p.params[:min(len(p.params), int(p.args[1]))], ResponderResources: p.args[2], InitiatorDepth: p.args[3],
		RetryCount: p.args[4], RNRRetryCount: p.args[5], MinRNRTimer: p.args[6],
	}
}

// check: an error says what failed.
func (p *cmProgram) check(err error) {
	p.t.Helper()
	if e := (*Error)(nil); err != nil && (!errors.As(err, &e) || e.Op == "" || err.Error() == "") {
		p.t.Errorf("error %#v does not say what failed", err)
	}
}

// event queues a record: any bytes, but for the fields that lead somewhere, most often.
func (p *cmProgram) event() {
	var r abi.RdmaUcmEventResp
	copy(uapi.Bytes(&r), p.params)
	if p.args[0]&0x80 == 0 && len(p.k.uids) > 0 {
		r.Uid = p.k.uids[int(p.args[0])%len(p.k.uids)]
	}
	if p.args[1] < 0xf0 {
		r.Event = uint32(p.args[1] % 20)
	}
	if p.args[2] < 0xf0 {
		r.Status = uint32(int32(int8(p.args[2])))
	}
	p.k.next++
	r.Id = p.k.next
	if r.Event == uint32(EventConnectRequest) {
		p.k.kids[r.Id]++
	}
	p.k.events = append(p.k.events, r)
}

// next receives an event, if one of those that are queued is to be reported.
func (p *cmProgram) next() {
	queued := slices.Clone(p.k.events)
	ev, err := p.ch.NextEvent(context.Background())
	if p.check(err); (ev == nil) != (err != nil) {
		p.t.Fatalf("got event %v and error %v", ev, err)
	}
	if err != nil {
		if len(p.k.events) > 0 {
			p.t.Errorf("got %v, and %d events are queued", err, len(p.k.events))
		}
		return
	}
	p.judge(ev, &queued[len(queued)-len(p.k.events)-1])
}

// judge compares what is reported with the record.
func (p *cmProgram) judge(ev *Event, r *abi.RdmaUcmEventResp) {
	p.check(ev.Err)
	if ev.ID == nil || ev.Status != int32(r.Status) {
		p.t.Errorf("got %+v of %+v", ev, r)
	}
	_ = ev.Type.String()
	switch from := EventType(r.Event); {
	case from == EventConnectRequest:
		if ev.Listener == nil || ev.ID == ev.Listener || ev.Type != from {
			p.t.Errorf("request %+v", ev)
		}
		p.ids = append(p.ids, ev.ID)
	case ev.Listener != nil || !slices.Contains(p.ids, ev.ID):
		p.t.Errorf("event %v of an id that is closed, or of a listener", ev.Type)
	case from == EventMulticastJoin && (ev.Type == from || ev.Type == EventMulticastError) && ev.Context == any(p):
	case from != ev.Type && ev.Type != EventDisconnected && ev.Type != EventConnectError && ev.Type != EventEstablished:
		p.t.Errorf("%v became %v", from, ev.Type)
	}
	switch ev.Type {
	case EventAddrError, EventRouteError, EventConnectError, EventUnreachable, EventRejected, EventDeviceRemoval:
		if ev.Err == nil {
			p.t.Errorf("%v is no error", ev.Type)
		}
	}
	p.count(ev)
	private := r.ParamConn().PrivateData[:r.ParamConn().PrivateDataLen]
	if ev.ID.ps.datagrams() {
		private = r.ParamUd().PrivateData[:r.ParamUd().PrivateDataLen]
	}
	if len(ev.PrivateData) > 0 && !bytes.Equal(ev.PrivateData, private) {
		p.t.Errorf("private data %x of %x", ev.PrivateData, private)
	}
}

// count: the end of a connection is reported once.
func (p *cmProgram) count(ev *Event) {
	switch ev.Type {
	case EventConnectError, EventUnreachable, EventRejected, EventDisconnected:
		if first, twice := p.reported[ev.ID]; twice {
			p.t.Errorf("%v after the end was reported as %v", ev.Type, first)
		}
		p.reported[ev.ID] = ev.Type
	}
}

// end receives what is left and closes all, now that the kernel behaves.
func (p *cmProgram) end() {
	p.k.tame = true
	for len(p.k.events) > 0 {
		p.next()
	}
	for _, id := range p.ids {
		if err := id.Close(); err != nil {
			p.t.Errorf("close id: %v", err)
		}
	}
	if err := p.ch.Close(); err != nil || !p.k.ended {
		p.t.Errorf("close channel: %v", err)
	}
	for kid := range p.k.kids {
		if !p.k.stuck[kid] {
			p.t.Errorf("id %d is left in the kernel", kid)
		}
	}
}

// FuzzSockaddr: an address that the kernel gives is the zero one, or one that it takes back.
func FuzzSockaddr(f *testing.F) {
	for _, text := range []string{"10.9.0.1:7174", "[2001:db8::1]:1", "[::ffff:10.9.0.1]:2", "[::]:0", "[ff02::1]:3"} {
		var s abi.KernelSockaddrStorage
		if _, err := putSockaddr(&s, netip.MustParseAddrPort(text)); err != nil {
			f.Fatal(err)
		}
		f.Add(slices.Clone(uapi.Bytes(&s)))
	}
	f.Add([]byte{10, 0, 1, 1, 0, 0, 0, 0, 0xfe, 0x80, 23: 1, 24: 1, 27: 0})
	f.Add([]byte{2})
	var ib abi.KernelSockaddrStorage
	putSockaddrIB(&ib, &ibRemote)
	f.Add(slices.Clone(uapi.Bytes(&ib)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var s, again abi.KernelSockaddrStorage
		copy(uapi.Bytes(&s), raw)
		a := getSockaddr(&s)
		family := binary.NativeEndian.Uint16(uapi.Bytes(&s))
		if a.isIB != (family == afIB) {
			t.Fatalf("family %d gives %+v", family, a)
		}
		if a.isIB {
			if putSockaddrIB(&again, &a.ib); !bytes.Equal(uapi.Bytes(&again)[:sizeIB], uapi.Bytes(&s)[:sizeIB]) {
				t.Errorf("%+v came back as %+v", a.ib, getSockaddrIB(&again))
			}
			return
		}
		if known := family == afINET || family == afINET6; a.addr.IsValid() != known || a.addr.Addr().Zone() != "" {
			t.Fatalf("family %d gives %v", family, a.addr)
		}
		addr := a.withZone()
		if addr.Addr().WithZone("") != a.addr.Addr() || addr.Port() != a.addr.Port() {
			t.Errorf("%v is %v with its zone", a.addr, addr)
		}
		n, err := putSockaddr(&again, addr)
		switch {
		case !addr.IsValid(), a.scope == 0 && addr.Addr().IsLinkLocalUnicast() && addr.Addr().Is6():
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%v: error %v, want ErrInvalid", addr, err)
			}
			return
		case err != nil || n != sizeINET && n != sizeINET6:
			t.Fatalf("%v: %d bytes, %v", addr, n, err)
		}
		back := getSockaddr(&again)
		if back.addr != a.addr || addr.Addr().Zone() != "" && back.scope != a.scope {
			t.Errorf("%v of scope %d came back as %v of scope %d", a.addr, a.scope, back.addr, back.scope)
		}
	})
}

// FuzzPath: a path record that comes from the kernel goes back to it as it was, but for what
// is reserved.
func FuzzPath(f *testing.F) {
	f.Add(uint32(0x2b), wirePath[:])
	f.Fuzz(func(t *testing.T, flags uint32, raw []byte) {
		var from, to abi.IbPathRecData
		from.Flags = flags
		b := uapi.Bytes(&from.PathRec)
		copy(b, raw)
		p := getPath(&from)
		putPath(&to, &p)
		b[44] &= 0x8f // between raw traffic and flow label
		clear(b[58:])
		if from != to {
			t.Errorf("%x came back as %x", uapi.Bytes(&from), uapi.Bytes(&to))
		}
	})
}

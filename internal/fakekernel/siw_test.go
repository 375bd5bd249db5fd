//go:build linux

package fakekernel

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/siw"
	"github.com/pureverbs/rdma/internal/uapi"
)

func TestSiwDiscover(t *testing.T) {
	k := start(t, Options{Root: t.TempDir(), Devices: []Device{{}, {Driver: abi.RDMA_DRIVER_SIW}}})
	sys := k.System()
	noNetlink := *sys
	noNetlink.Netlink = func() (discover.Transport, error) { return nil, unix.EPERM }
	for name, s := range map[string]*discover.System{"netlink": sys, "sysfs": &noNetlink} {
		devs, err := s.Devices()
		must(t, err)
		d := devs[1]
		if d.Name != "siw1" || d.Driver != abi.RDMA_DRIVER_SIW || d.ABI != 1 || d.NodeType != abi.RDMA_NODE_RNIC || d.Reason != nil {
			t.Errorf("by %s: %+v", name, d)
		}
		if name == "netlink" && d.Protocol != "iw" {
			t.Errorf("protocol %q", d.Protocol)
		}
		if _, err := s.PKey(&d, 1, 0); err == nil {
			t.Error("there is a P_Key")
		}
	}
}

// TestSiwQueries: what the device says of itself, in one line each.
func TestSiwQueries(t *testing.T) {
	d := openSiw(t, startSiw(t, Options{Devices: []Device{{Driver: abi.RDMA_DRIVER_SIW, GUID: 0x0242_acff_fe11_0009}}}))
	var attr abi.IbUverbsQueryDeviceResp
	must(t, d.invoke(uapi.QueryDevice, bytesOf(&abi.IbUverbsQueryDevice{}), bytesOf(&attr)))
	if attr.MaxSge != 6 || attr.MaxSgeRd != 1 || attr.MaxMw != 0 || attr.MaxAh != 0 || attr.AtomicCap != 0 || attr.MaxQpRdAtom != 128 {
		t.Errorf("device: %+v", attr)
	}
	var port abi.IbUverbsQueryPortRespEx
	must(t, siwCmd(uapi.QueryPort).Const(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1).
		Out(abi.UVERBS_ATTR_QUERY_PORT_RESP, bytesOf(&port)).Do(d.f))
	if p := port.LegacyResp; p.GidTblLen != 1 || p.PkeyTblLen != 0 || p.MaxMsgSz != 1<<32-1 || p.LinkLayer != 2 {
		t.Errorf("port: %+v", p)
	}
	entry := func(i uint64) (e abi.IbUverbsGidEntry, err error) {
		err = siwCmd(uapi.QueryGIDEntry).Const(abi.UVERBS_ATTR_QUERY_GID_ENTRY_PORT, 1).
			Const(abi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, i).Flags(abi.UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0).
			Out(abi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, bytesOf(&e)).Do(d.f)
		return e, err
	}
	e, err := entry(0)
	want := [16]byte{0x00, 0x42, 0xac, 0x11, 0x00, 0x09}
	if err != nil || [16]byte(bytesOf(&e.Gid)) != want || e.GidType != 0 || e.NetdevIfindex != 0 {
		t.Errorf("GID %+v, %v", e, err)
	}
	if _, err := entry(1); !errors.Is(err, unix.EINVAL) {
		t.Errorf("second GID: %v", err)
	}
}

// TestSiwMissing: what siw does not do, and how that is said.
func TestSiwMissing(t *testing.T) {
	d := openSiw(t, startSiw(t, Options{}))
	for _, w := range []*uapi.WriteCmd{
		uapi.ReqNotifyCQ, uapi.CreateAH, uapi.AllocMW, uapi.ResizeCQ, uapi.ReregMR, uapi.AttachMcast, uapi.DetachMcast,
		uapi.OpenXRCD, uapi.CreateFlow, uapi.ModifyCQ,
	} {
		want(t, w.Name, d.invoke(w, make([]byte, w.In), make([]byte, w.Out)), unix.EOPNOTSUPP)
	}
	for _, m := range []*uapi.Method{uapi.AHDestroy, uapi.MWDestroy, uapi.XRCDDestroy, uapi.FlowDestroy} {
		want(t, m.Name, siwCmd(m).Destroy(m.Attrs[0].ID, 0).Do(d.f), unix.EPROTONOSUPPORT)
	}
	q := &siwRawQP{d: d, cq: d.cq(1)}
	for _, typ := range []uint64{abi.IB_UVERBS_QPT_UD, abi.IB_UVERBS_QPT_UC} {
		want(t, "type of queue pair", q.create(&siwCap, typ, new(siw.QPPlan).Out()).Do(d.f), unix.EOPNOTSUPP)
	}
}

func TestSiwLimits(t *testing.T) {
	k := startSiw(t, Options{})
	want(t, "context without room", siwCmd(uapi.GetContext).Do(open(t, k, k.devices[0].node())), unix.EINVAL)
	d := openSiw(t, k)
	for _, tt := range []struct {
		cqe   uint32
		room  int
		errno unix.Errno
	}{{0, 16, unix.EINVAL}, {siwMaxCQE + 1, 16, unix.EINVAL}, {1, 15, unix.EINVAL}, {1, 16, 0}, {1000, 16, 0}} {
		var size uint32
		want(t, "completion queue", d.createCQ(tt.cqe, &size, make([]byte, tt.room)).Do(d.f), tt.errno)
	}
	cq := d.cq(1000)
	if cq.size != 1024 {
		t.Errorf("queue of %d, want 1024", cq.size)
	}
	for _, tt := range []struct {
		name  string
		cap   abi.IbUverbsQpCap
		errno unix.Errno
	}{
		{"least", abi.IbUverbsQpCap{MaxSendWr: 1}, 0},
		{"no sends", abi.IbUverbsQpCap{MaxRecvWr: 1}, unix.EINVAL},
		{"too many sends", abi.IbUverbsQpCap{MaxSendWr: 1<<15 + 1}, unix.EINVAL},
		{"too many receives", abi.IbUverbsQpCap{MaxSendWr: 1, MaxRecvWr: 1<<15 + 1}, unix.EINVAL},
		{"seven pieces", abi.IbUverbsQpCap{MaxSendWr: 1, MaxSendSge: 7}, unix.EINVAL},
		{"seven pieces to receive", abi.IbUverbsQpCap{MaxSendWr: 1, MaxRecvSge: 7}, unix.EINVAL},
		{"inline", abi.IbUverbsQpCap{MaxSendWr: 1, MaxInlineData: 81}, unix.EINVAL},
	} {
		q := &siwRawQP{d: d, cq: cq}
		want(t, tt.name, q.create(&tt.cap, abi.IB_UVERBS_QPT_RC, new(siw.QPPlan).Out()).Do(d.f), tt.errno)
	}
	q := &siwRawQP{d: d, cq: cq}
	want(t, "queue pair without room", q.create(&siwCap, abi.IB_UVERBS_QPT_RC, make([]byte, 31)).Do(d.f), unix.EINVAL)
	for _, tt := range []struct {
		wr, sge, limit uint32
		errno          unix.Errno
	}{{0, 1, 0, unix.EINVAL}, {siwMaxSRQWR + 1, 1, 0, unix.EINVAL}, {8, 7, 0, unix.EINVAL}, {8, 1, 9, unix.EINVAL}, {8, 6, 8, 0}} {
		var s siwRawSRQ
		want(t, "shared queue", d.createSRQ(tt.wr, tt.sge, tt.limit, &s, new(siw.SRQPlan).Out()).Do(d.f), tt.errno)
	}
	in := abi.IbUverbsRegMr{Start: 0x1000, HcaVa: 0x1000, Length: 1, PdHandle: d.pd}
	var r abi.IbUverbsRegMrResp
	in.Start = uapi.Addr(d.mr(0).mem)
	in.HcaVa = in.Start
	want(t, "memory without a key", d.invoke(uapi.RegMR, bytesOf(&in), bytesOf(&r)), unix.EINVAL)
}

// TestSiwAnswers: keys begin at 0 in each context, and only the whole of a queue can be
// mapped. A queue pair answers with the sizes that were asked for, and a query tells others.
func TestSiwAnswers(t *testing.T) {
	k := startSiw(t, Options{})
	openSiw(t, k).cq(64)
	d := openSiw(t, k)
	var (
		size   uint32
		answer abi.SiwUrespCreateCq
	)
	must(t, d.createCQ(200, &size, bytesOf(&answer)).Do(d.f))
	if size != 256 || answer.NumCqe != 256 || answer.CqKey != 0 {
		t.Errorf("queue of %d: %+v", size, answer)
	}
	length := int(2*pageSize) + int(pageSize) // 256 * 32 + 8, in whole pages
	for n, errno := range map[int]unix.Errno{length - int(pageSize): unix.EINVAL, length + int(pageSize): unix.EINVAL, 256*32 + 8: unix.EINVAL} {
		_, err := d.f.Map(0, n, uapi.ProtRead|uapi.ProtWrite)
		want(t, "wrong length", err, errno)
	}
	mem, err := d.f.Map(0, length, uapi.ProtRead|uapi.ProtWrite)
	must(t, err)
	must(t, d.f.Unmap(mem))

	q := &siwRawQP{d: d, cq: d.cq(1)}
	var r abi.SiwUrespCreateQp
	c := q.create(&abi.IbUverbsQpCap{MaxSendWr: 3, MaxRecvWr: 100}, abi.IB_UVERBS_QPT_RC, bytesOf(&r))
	must(t, c.Do(d.f))
	q.handle = c.Result(abi.UVERBS_ATTR_CREATE_QP_HANDLE)
	if q.cap.MaxSendWR != 3 || q.cap.MaxRecvWR != 100 || q.cap.MaxInline != 0 {
		t.Errorf("capacities %+v, want what was asked for", q.cap)
	}
	first := abi.SiwUrespCreateQp{QpId: 1, NumSqe: 4, NumRqe: 128, SqKey: 4 * pageSize, RqKey: 5 * pageSize}
	if diff := cmp.Diff(bytesOf(&first), bytesOf(&r)); diff != "" && pageSize == 4096 {
		t.Errorf("answer %+v, want %+v", r, first)
	}
	real := q.query()
	if real.MaxSendWr != 4 || real.MaxRecvWr != 128 || real.MaxInlineData != 80 || real.QpState != stateInit {
		t.Errorf("query: %+v", real)
	}

	// With a shared queue the answer still names a size, and no queue.
	s := d.sharedQueue(10, 0)
	if s.wr != 10 {
		t.Errorf("shared queue of %d, want what was asked for", s.wr)
	}
	q = &siwRawQP{d: d, cq: d.cq(1), srq: s}
	must(t, q.create(&siwCap, abi.IB_UVERBS_QPT_RC, bytesOf(&r)).Do(d.f))
	if r.QpId != 2 || r.NumRqe != 16 || r.RqKey != 0 {
		t.Errorf("with a shared queue: %+v", r)
	}
}

// TestSiwNumbers: the number of a queue pair that is gone comes back at once.
func TestSiwNumbers(t *testing.T) {
	d := openSiw(t, startSiw(t, Options{}))
	a, b := d.qp(), d.qp()
	if a.num != 1 || b.num != 2 {
		t.Errorf("numbers %d and %d", a.num, b.num)
	}
	a.destroy()
	if c := d.qp(); c.num != 1 {
		t.Errorf("number %d, want 1 again", c.num)
	}
}

func TestSiwModify(t *testing.T) {
	q := openSiw(t, startSiw(t, Options{})).qp()
	for _, tt := range []struct {
		name  string
		a     abi.IbUverbsModifyQp
		errno unix.Errno
		state uint8
	}{
		{"nothing", abi.IbUverbsModifyQp{}, 0, stateInit},
		{"RTS", abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateRTS}, unix.EINVAL, stateInit},
		{"as the connection manager says", abi.IbUverbsModifyQp{
			AttrMask: maskState | maskAccess | maskPort, QpState: stateInit, PortNum: 1}, 0, stateInit},
		{"RTR, with what RoCE wants", abi.IbUverbsModifyQp{
			AttrMask: maskState | maskMTU | maskDest, QpState: stateRTR}, 0, stateInit},
		{"port 2", abi.IbUverbsModifyQp{AttrMask: maskPort, PortNum: 2}, unix.EINVAL, stateInit},
		{"no state", abi.IbUverbsModifyQp{AttrMask: maskState, QpState: 7}, unix.EINVAL, stateInit},
		{"rate limit", abi.IbUverbsModifyQp{AttrMask: 1 << 25}, unix.EOPNOTSUPP, stateInit},
		{"error", abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateError}, 0, stateError},
		{"reset does not lead out", abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateReset}, 0, stateError},
	} {
		tt.a.QpHandle = q.handle
		want(t, tt.name, q.d.invoke(uapi.ModifyQP, bytesOf(&tt.a), nil), tt.errno)
		if s := q.query().QpState; s != tt.state {
			t.Errorf("%s: state %d, want %d", tt.name, s, tt.state)
		}
	}
	old := start(t, Options{Devices: siwDevices})
	if r := openSiw(t, old).qp().query(); r.QpState != stateReset {
		t.Errorf("Linux 6.1 tells state %d", r.QpState)
	}
}

// TestSiwDoorbell: before the connection a request is refused, and stays; in error it is
// taken for posted, and stays as well.
func TestSiwDoorbell(t *testing.T) {
	q := openSiw(t, startSiw(t, Options{})).qp()
	wr := provider.SendWR{ID: 1, Opcode: provider.OpSend}
	q.recv(7)
	q.queue(wr)
	want(t, "not connected", q.bell.Ring(), unix.ENOTCONN)
	must(t, q.modify(stateError))
	same(t, "flushed", q.cq.ended(), []ended{{7, provider.WCFlushError}}) // the send request is not
	q.recv(8)
	q.queue(wr)
	want(t, "in error", q.bell.Ring(), 0)
	same(t, "posted in error", q.cq.ended(), nil)
	taken := 0
	q.q.TakeSends(func(uint64) { taken++ })
	q.q.TakeRecvs(func(uint64) { taken++ })
	if taken != 3 {
		t.Errorf("%d requests left, want 3", taken)
	}
	q.d.raised("never connected")
}

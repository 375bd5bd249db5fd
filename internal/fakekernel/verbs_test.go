//go:build linux

package fakekernel

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/uapi"
)

func TestContext(t *testing.T) {
	k := start(t, Options{})
	f := open(t, k, "/dev/infiniband/uverbs0")
	port := func() error {
		return cmd(uapi.QueryPort).Const(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1).
			Out(abi.UVERBS_ATTR_QUERY_PORT_RESP, make([]byte, 48)).Do(f)
	}
	want(t, "method before the context", port(), unix.EINVAL)
	var r abi.IbUverbsAllocPdResp
	want(t, "command before the context", uapi.Invoke(f, abi.RDMA_DRIVER_RXE, uapi.AllocPD,
		bytesOf(&abi.IbUverbsAllocPd{}), bytesOf(&r), nil, nil), unix.EINVAL)
	want(t, "context", cmd(uapi.GetContext).Do(f), 0)
	want(t, "second context", cmd(uapi.GetContext).Do(f), unix.EINVAL)
	want(t, "method", port(), 0)
}

// TestHandles: they begin at 0, and the lowest that is free is given.
func TestHandles(t *testing.T) {
	d := openDev(t, start(t, Options{}))
	for i := range uint32(3) {
		if h := d.pd(); h != i {
			t.Errorf("handle %d, want %d", h, i)
		}
	}
	must(t, cmd(uapi.PDDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, 1).Do(d.f))
	if h := d.pd(); h != 1 {
		t.Errorf("handle %d, want the free 1", h)
	}
}

// TestBusy: what is in use does not end.
func TestBusy(t *testing.T) {
	k := start(t, Options{})
	d := openDev(t, k)
	q := d.qp()
	endPD := func() error {
		return cmd(uapi.PDDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, q.pd).Do(d.f)
	}
	endCQ := func() error {
		return cmd(uapi.CQDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_CQ_HANDLE, q.cq.handle).
			Out(abi.UVERBS_ATTR_DESTROY_CQ_RESP, make([]byte, 8)).Do(d.f)
	}
	want(t, "domain", endPD(), unix.EBUSY)
	want(t, "completion queue", endCQ(), unix.EBUSY)
	want(t, "queue pair", cmd(uapi.QPDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, q.handle).
		Out(abi.UVERBS_ATTR_DESTROY_QP_RESP, make([]byte, 4)).Do(d.f), 0)
	want(t, "completion queue", endCQ(), 0)
	want(t, "domain with memory", endPD(), unix.EBUSY)
	want(t, "memory", cmd(uapi.MRDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_MR_HANDLE, q.mr.MrHandle).Do(d.f), 0)
	want(t, "domain", endPD(), 0)
	if c := k.Counts(); c != (Counts{Contexts: 1, CompChannels: 1, AsyncChannels: 1, Maps: 3}) {
		t.Errorf("left: %+v, want the context, its channels and the mappings", c)
	}
	must(t, q.q.Close())
	must(t, q.cq.q.Close())
	if n := k.Counts().Maps; n != 0 {
		t.Errorf("%d mappings are left", n)
	}
}

func TestMap(t *testing.T) {
	d := openDev(t, start(t, Options{}))
	var (
		size uint32
		resp abi.RxeCreateCqResp
	)
	must(t, createCQ(10, &size, bytesOf(&resp)).Do(d.f))
	if size != 15 {
		t.Errorf("10 entries became %d, want 15", size)
	}
	off, n := int64(resp.Mi.Offset), int(resp.Mi.Size)
	do := func(off int64, n int) error { _, err := d.f.Map(off, n, 3); return err }
	want(t, "too long", do(off, n+1), unix.EINVAL)
	want(t, "nothing there", do(off+4096, n), unix.EINVAL)
	mem, err := d.f.Map(off, n, 3)
	must(t, err)
	want(t, "twice", do(off, n), unix.EINVAL)
	want(t, "unmap a part", d.f.Unmap(mem[:100]), unix.EINVAL)
	want(t, "unmap", d.f.Unmap(mem), 0)
	want(t, "unmap twice", d.f.Unmap(mem), unix.EINVAL)
}

// TestCaps: sizes are raised as rxe raises them.
func TestCaps(t *testing.T) {
	d := openDev(t, start(t, Options{Kernel: "6.12"}))
	q := &rawQP{d: d, pd: d.pd(), cq: d.cq(16), typ: abi.IB_UVERBS_QPT_RC}
	for _, tt := range []struct{ ask, want abi.IbUverbsQpCap }{
		{abi.IbUverbsQpCap{MaxSendWr: 10, MaxRecvWr: 7, MaxSendSge: 2, MaxRecvSge: 3, MaxInlineData: 64},
			abi.IbUverbsQpCap{MaxSendWr: 15, MaxRecvWr: 7, MaxSendSge: 4, MaxRecvSge: 3, MaxInlineData: 64}},
		{abi.IbUverbsQpCap{MaxSendWr: 16, MaxRecvWr: 0, MaxSendSge: 3, MaxInlineData: 8},
			abi.IbUverbsQpCap{MaxSendWr: 31, MaxRecvWr: 0, MaxSendSge: 3, MaxInlineData: 48}},
	} {
		var plan rxe.QPPlan
		must(t, createQP(q, &tt.ask, plan.Out()).Do(d.f))
		if got := abi.IbUverbsQpCap(abi.IbUverbsQpCap{
			MaxSendWr: q.cap.MaxSendWR, MaxRecvWr: q.cap.MaxRecvWR, MaxSendSge: q.cap.MaxSendSGE,
			MaxRecvSge: q.cap.MaxRecvSGE, MaxInlineData: q.cap.MaxInline,
		}); got != tt.want {
			t.Errorf("%+v became %+v, want %+v", tt.ask, got, tt.want)
		}
	}
	var plan rxe.QPPlan
	over := createQP(q, &abi.IbUverbsQpCap{MaxSendWr: 1, MaxInlineData: maxInline + 1}, plan.Out())
	want(t, "too much inline", over.Do(d.f), unix.EINVAL)
}

func TestRegMR(t *testing.T) {
	k := start(t, Options{Memlock: 4 * pageSize})
	d := openDev(t, k)
	pd := d.pd()
	mem, err := unix.Mmap(-1, 0, 3*int(pageSize), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	must(t, err)
	t.Cleanup(func() { unix.Munmap(mem) })
	reg := func(in abi.IbUverbsRegMr) (r abi.IbUverbsRegMrResp, err error) {
		in.PdHandle = pd
		err = d.invoke(uapi.RegMR, bytesOf(&in), bytesOf(&r))
		return r, err
	}
	at, n := uapi.Addr(mem), uint64(len(mem))
	for _, tt := range []struct {
		name string
		in   abi.IbUverbsRegMr
		want syscall.Errno
	}{
		{"read only", abi.IbUverbsRegMr{Start: at, HcaVa: at, Length: n}, 0},
		{"too much locked", abi.IbUverbsRegMr{Start: at, HcaVa: at, Length: n}, unix.ENOMEM},
		{"write to read only", abi.IbUverbsRegMr{Start: at, HcaVa: at, Length: 1, AccessFlags: abi.IB_UVERBS_ACCESS_LOCAL_WRITE}, unix.EFAULT},
		{"not mapped", abi.IbUverbsRegMr{Start: 0x1000, HcaVa: 0x1000, Length: 1}, unix.EFAULT},
		{"beyond the map", abi.IbUverbsRegMr{Start: at, HcaVa: at, Length: 1 << 46}, unix.EFAULT},
		{"nothing", abi.IbUverbsRegMr{Start: at, HcaVa: at}, unix.EINVAL},
		{"offset in page", abi.IbUverbsRegMr{Start: at, HcaVa: at + 1, Length: 1}, unix.EINVAL},
		{"remote write alone", abi.IbUverbsRegMr{Start: at, HcaVa: at, Length: 1, AccessFlags: abi.IB_UVERBS_ACCESS_REMOTE_WRITE}, unix.EINVAL},
		{"unknown access", abi.IbUverbsRegMr{Start: at, HcaVa: at, Length: 1, AccessFlags: 1 << 18}, unix.EINVAL},
	} {
		r, err := reg(tt.in)
		want(t, tt.name, err, tt.want)
		if err == nil && r.Rkey != 0 {
			t.Errorf("%s: remote key %#x for memory without remote access", tt.name, r.Rkey)
		}
	}
}

func TestModify(t *testing.T) {
	k := start(t, Options{})
	q := openDev(t, k).qp()
	bad := func(name string, a abi.IbUverbsModifyQp, errno syscall.Errno) {
		t.Helper()
		want(t, name, q.modify(a), errno)
	}
	bad("RESET to RTS", abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateRTS}, unix.EINVAL)
	bad("no port", abi.IbUverbsModifyQp{AttrMask: maskState | maskPKey | maskAccess, QpState: stateInit}, unix.EINVAL)
	bad("port 2", abi.IbUverbsModifyQp{AttrMask: maskState | initBits, QpState: stateInit, PortNum: 2}, unix.EINVAL)
	bad("unknown bit", abi.IbUverbsModifyQp{AttrMask: maskState | initBits | 1<<22, QpState: stateInit, PortNum: 1}, unix.EOPNOTSUPP)
	must(t, q.toInit())
	rtr := abi.IbUverbsModifyQp{
		AttrMask: maskState | maskAV | maskMTU | maskDest | maskRQPSN | maskMaxDestRD | maskMinRNR, QpState: stateRTR,
		PathMtu: 3, Dest: abi.IbUverbsQpDest{SgidIndex: 1, IsGlobal: 1, PortNum: 1},
	}
	edit := func(f func(a *abi.IbUverbsModifyQp)) abi.IbUverbsModifyQp { a := rtr; f(&a); return a }
	bad("not global", edit(func(a *abi.IbUverbsModifyQp) { a.Dest.IsGlobal = 0 }), unix.EINVAL)
	bad("empty GID", edit(func(a *abi.IbUverbsModifyQp) { a.Dest.SgidIndex = 9 }), unix.ENODATA)
	bad("MTU over any port's", edit(func(a *abi.IbUverbsModifyQp) { a.PathMtu = 6 }), unix.EINVAL)
	bad("no MTU", edit(func(a *abi.IbUverbsModifyQp) { a.AttrMask &^= maskMTU }), unix.EINVAL)
	bad("too much", edit(func(a *abi.IbUverbsModifyQp) { a.AttrMask |= maskTimeout }), unix.EINVAL)
	bad("good", rtr, 0)
	want(t, "doorbell", q.bell.Ring(), unix.EINVAL)
	if q.state() != stateRTR {
		t.Errorf("state %d, want RTR", q.state())
	}
	bad("wrong current state", abi.IbUverbsModifyQp{AttrMask: maskState | maskCurState, QpState: stateRTS, CurQpState: stateInit}, unix.EINVAL)
	must(t, q.toRTS(0, 1, 1))
	bad("to SQD", abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateSQD}, 0)
	bad("to ERR with more", abi.IbUverbsModifyQp{AttrMask: maskState | maskQKey, QpState: stateError}, unix.EINVAL)
	bad("to ERR", abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateError}, 0)
}

func TestWriteInterface(t *testing.T) {
	k := start(t, Options{})
	d := openDev(t, k)
	c := d.cq(4)
	body := abi.IbUverbsReqNotifyCq{CqHandle: c.handle}
	frame := func(hdr abi.IbUverbsCmdHdr) []byte {
		return append(append([]byte{}, bytesOf(&hdr)...), bytesOf(&body)...)
	}
	write := func(p []byte) error {
		n, err := d.f.Write(nil, p) //nolint:staticcheck // a single attempt
		if err == nil && n != len(p) {
			t.Errorf("%d bytes written, want %d", n, len(p))
		}
		return err
	}
	good := abi.IbUverbsCmdHdr{Command: abi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, InWords: 4}
	want(t, "good", write(frame(good)), 0)
	want(t, "words", write(frame(abi.IbUverbsCmdHdr{Command: good.Command, InWords: 5})), unix.EINVAL)
	want(t, "no header", write([]byte{1, 2}), unix.EINVAL)
	want(t, "no handler", write(frame(abi.IbUverbsCmdHdr{Command: 22, InWords: 4})), unix.EOPNOTSUPP)
	body.CqHandle = 99
	want(t, "handle", write(frame(good)), unix.ENOENT)
	k.opts.DenyWrite = true
	want(t, "other credentials", write(frame(good)), unix.EACCES)
}

func TestMappedKnowsItsProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/maps"); err != nil {
		t.Skip("needs /proc")
	}
	mem, err := unix.Mmap(-1, 0, 4*int(pageSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	must(t, err)
	defer unix.Munmap(mem)
	must(t, unix.Mprotect(mem[pageSize:2*pageSize], unix.PROT_READ))
	at := uapi.Addr(mem)
	for _, tt := range []struct {
		from, n uint64
		write   bool
		want    bool
	}{
		{0, 4 * pageSize, false, true}, {0, pageSize, true, true}, {0, pageSize + 1, true, false}, {pageSize - 1, 2, false, true},
	} {
		if got := userMem(0).mapped(at+tt.from, tt.n, tt.write); got != tt.want {
			t.Errorf("%+v: got %v", tt, got)
		}
	}
}

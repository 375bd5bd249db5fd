//go:build linux

package fakekernel

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

func (d *dev) rereg(c abi.IbUverbsReregMr) (r abi.IbUverbsReregMrResp, err error) {
	err = d.invoke(uapi.ReregMR, bytesOf(&c), bytesOf(&r))
	return r, err
}

func TestRereg(t *testing.T) {
	d := openDev(t, start(t, Options{Kernel: "6.12"}))
	pd, other := d.pd(), d.pd()
	mem, err := uapi.AllocPages(4096)
	must(t, err)
	t.Cleanup(func() { uapi.FreePages(mem) })
	m, err := d.regMR(pd, mem, abi.IB_UVERBS_ACCESS_LOCAL_WRITE)
	must(t, err)
	readOnly, err := d.regMR(pd, mem, 0)
	must(t, err)
	for _, tt := range []struct {
		name string
		c    abi.IbUverbsReregMr
		want syscall.Errno
	}{
		{"nothing", abi.IbUverbsReregMr{MrHandle: m.MrHandle}, unix.EINVAL},
		{"unknown flag", abi.IbUverbsReregMr{MrHandle: m.MrHandle, Flags: 8}, unix.EOPNOTSUPP},
		{"no such region", abi.IbUverbsReregMr{MrHandle: 999, Flags: reregPD}, unix.ENOENT},
		{"no such domain", abi.IbUverbsReregMr{MrHandle: m.MrHandle, Flags: reregPD, PdHandle: 999}, unix.ENOENT},
		{"offset in page", abi.IbUverbsReregMr{MrHandle: m.MrHandle, Flags: reregTranslation, Start: 1}, unix.EINVAL},
		{"translation", abi.IbUverbsReregMr{MrHandle: m.MrHandle, Flags: reregTranslation, Start: uapi.Addr(mem), HcaVa: uapi.Addr(mem), Length: 10}, unix.EOPNOTSUPP},
		{"remote write alone", abi.IbUverbsReregMr{MrHandle: m.MrHandle, Flags: reregAccess, AccessFlags: 2}, unix.EINVAL},
		{"huge pages", abi.IbUverbsReregMr{MrHandle: m.MrHandle, Flags: reregAccess, AccessFlags: abi.IB_UVERBS_ACCESS_HUGETLB}, unix.EOPNOTSUPP},
		{"write to read only", abi.IbUverbsReregMr{MrHandle: readOnly.MrHandle, Flags: reregAccess, AccessFlags: 1}, unix.EACCES},
		{"domain and access", abi.IbUverbsReregMr{MrHandle: m.MrHandle, Flags: reregPD | reregAccess, PdHandle: other, AccessFlags: everything}, 0},
	} {
		r, err := d.rereg(tt.c)
		want(t, tt.name, err, tt.want)
		if err == nil && (r.Lkey != m.Lkey || r.Rkey != m.Rkey) {
			t.Errorf("keys %#x and %#x, want %#x and %#x", r.Lkey, r.Rkey, m.Lkey, m.Rkey)
		}
	}
	end := func(pd uint32) error {
		return cmd(uapi.PDDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, pd).Do(d.f)
	}
	must(t, d.deregMR(readOnly.MrHandle))
	want(t, "the old domain", end(pd), 0)
	want(t, "the new domain", end(other), unix.EBUSY)
}

// TestMissing: what a kernel's core or rxe does not have, of which version on.
func TestMissing(t *testing.T) {
	const (
		no      = unix.EOPNOTSUPP
		unknown = unix.EPROTONOSUPPORT
	)
	dmabuf := func(d *dev) error {
		var l, r uint32
		return cmd(uapi.RegDMABufMR).New(abi.UVERBS_ATTR_REG_DMABUF_MR_HANDLE).Use(abi.UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, d.pd()).
			In64(abi.UVERBS_ATTR_REG_DMABUF_MR_OFFSET, 0).In64(abi.UVERBS_ATTR_REG_DMABUF_MR_LENGTH, 1).
			In64(abi.UVERBS_ATTR_REG_DMABUF_MR_IOVA, 0).In32(abi.UVERBS_ATTR_REG_DMABUF_MR_FD, 5).
			Out(abi.UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, bytesOf(&l)).Out(abi.UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, bytesOf(&r)).Do(d.f)
	}
	speed := func(d *dev) error {
		var s uint64
		return cmd(uapi.QueryPortSpeed).Const(abi.UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM, 1).
			Out(abi.UVERBS_ATTR_QUERY_PORT_SPEED_RESP, bytesOf(&s)).Do(d.f)
	}
	write := func(w *uapi.WriteCmd) func(d *dev) error {
		return func(d *dev) error { return d.invoke(w, make([]byte, w.In), make([]byte, w.Out)) }
	}
	destroy := func(m *uapi.Method) func(d *dev) error {
		return func(d *dev) error { return newFrame(m.Object, m.ID).do(d.f) }
	}
	for _, tt := range []struct {
		name            string
		do              func(d *dev) error
		k510, k601, k72 syscall.Errno
	}{
		{"dma-buf", dmabuf, unknown, no, no},
		{"speed of a port", speed, unknown, unknown, no},
		{"advice", func(d *dev) error { return d.advise(d.pd(), 0, 0, abi.IbUverbsSge{}) }, no, no, unix.EINVAL},
		{"rereg", write(uapi.ReregMR), no, no, unix.EINVAL},
		{"XRC domain", write(uapi.OpenXRCD), no, no, no},
		{"flow", write(uapi.CreateFlow), no, no, no},
		{"moderation", write(uapi.ModifyCQ), no, no, no},
		{"end of a flow", destroy(uapi.FlowDestroy), unknown, unknown, unknown},
		{"end of an XRC domain", destroy(uapi.XRCDDestroy), unknown, unknown, unknown},
		{"work queue", destroy(uapi.WQCreate), unknown, unknown, unknown},
		{"end of a work queue", destroy(uapi.WQDestroy), unknown, unknown, unknown},
		{"end of a window", destroy(uapi.MWDestroy), unknown, unix.EINVAL, unix.EINVAL},
	} {
		for kernel, errno := range map[string]syscall.Errno{"5.10": tt.k510, "6.1": tt.k601, "7.2": tt.k72} {
			want(t, tt.name+" on "+kernel, tt.do(openDev(t, start(t, Options{Kernel: kernel}))), errno)
		}
	}
}

func (d *dev) advise(pd uint32, advice, flags uint64, e abi.IbUverbsSge) error {
	return cmd(uapi.AdviseMR).Use(abi.UVERBS_ATTR_ADVISE_MR_PD_HANDLE, pd).
		Const(abi.UVERBS_ATTR_ADVISE_MR_ADVICE, advice).
		Flags(abi.UVERBS_ATTR_ADVISE_MR_FLAGS, flags).
		In(abi.UVERBS_ATTR_ADVISE_MR_SGE_LIST, bytesOf(&e)).Do(d.f)
}

func TestAdvise(t *testing.T) {
	q := openDev(t, start(t, Options{Kernel: "7.2"})).qp()
	e := abi.IbUverbsSge{Addr: uapi.Addr(q.mem), Length: 8, Lkey: q.mr.Lkey}
	want(t, "prefetch", q.d.advise(q.pd, abi.IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE, abi.IB_UVERBS_ADVISE_MR_FLAG_FLUSH, e), 0)
	want(t, "other advice", q.d.advise(q.pd, 3, 0, e), unix.EOPNOTSUPP)
	want(t, "flag", q.d.advise(q.pd, 0, 2, e), unix.EINVAL)
	want(t, "domain", q.d.advise(q.d.pd(), 0, 0, e), unix.EINVAL)
}

// TestAbilities: what the device says of itself.
func TestAbilities(t *testing.T) {
	for kernel, tt := range map[string]struct {
		wr, mw, ah int
		message    uint32
		flush      bool
		odp        uint64
	}{
		"5.10": {1 << 14, 0, 100, 1 << 23, false, 0},
		"6.1":  {1 << 20, 1<<19 - 1, 1<<15 - 1, 1 << 23, false, 0},
		"6.12": {1 << 20, 1<<19 - 1, 1<<15 - 1, 1 << 31, true, 0},
		"7.2":  {1 << 20, 1<<19 - 1, 1<<15 - 1, 1 << 31, true, 1},
	} {
		d := openDev(t, start(t, Options{Kernel: kernel}))
		var r abi.IbUverbsExQueryDeviceResp
		must(t, d.invoke(uapi.QueryDeviceEx, make([]byte, 8), bytesOf(&r)))
		if int(r.Base.MaxQpWr) != tt.wr || int(r.Base.MaxMw) != tt.mw || int(r.Base.MaxAh) != tt.ah ||
			r.DeviceCapFlagsEx&abi.IB_UVERBS_DEVICE_FLUSH_GLOBAL != 0 != tt.flush || r.OdpCaps.GeneralCaps != tt.odp {
			t.Errorf("%s: %+v", kernel, r)
		}
		var p abi.IbUverbsQueryPortRespEx
		must(t, cmd(uapi.QueryPort).Const(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1).Out(abi.UVERBS_ATTR_QUERY_PORT_RESP, bytesOf(&p)).Do(d.f))
		if p.LegacyResp.MaxMsgSz != tt.message {
			t.Errorf("%s: messages of %d bytes", kernel, p.LegacyResp.MaxMsgSz)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a version that is none was taken")
		}
	}()
	parseVersion("newest")
}

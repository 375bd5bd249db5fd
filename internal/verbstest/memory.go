//go:build linux

package verbstest

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) memoryTests() []test {
	return []test{
		{"RW28ReadOnlyMemory", u.rw28ReadOnlyMemory},
		{"RW28RemoteReadsReadOnly", u.rw28RemoteReadsReadOnly},
		{"GoHeapMemory", u.goHeapMemory},
		{"Reregister", u.reregister},
		{"ReregisterMemory", u.reregisterMemory},
		{"MemoryRefused", u.memoryRefused},
		{"AccessIsKept", u.accessIsKept},
		{"Advise", u.advise},
		{"RW31NothingStaysPinned", u.rw31NothingStaysPinned},
	}
}

// readOnly maps two pages of a file for reading.
func readOnly(t testing.TB, flags int) []byte {
	t.Helper()
	file, err := os.Create(t.TempDir() + "/data")
	testutil.Must(t, err)
	defer file.Close()
	want := make([]byte, 8192)
	testutil.Fill(want, 28)
	_, err = file.Write(want)
	testutil.Must(t, err)
	mem, err := syscall.Mmap(int(file.Fd()), 0, len(want), syscall.PROT_READ, flags)
	testutil.Must(t, err)
	t.Cleanup(func() { syscall.Munmap(mem) })
	return mem
}

// rw28ReadOnlyMemory: what is only read needs no write access.
func (u *Suite) rw28ReadOnlyMemory(t *testing.T) {
	flags := map[string]int{"private": syscall.MAP_PRIVATE}
	if u.has(t, readOnlyShared) {
		flags["shared"] = syscall.MAP_SHARED
	}
	for name, flag := range flags {
		mem := readOnly(t, flag)
		a, b := u.pair(t, 8192)
		mr, err := a.pd.RegMR(mem, 0)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		b.recv(t, 2, 0, 8192)
		a.send(t, uverbs.SendWR{ID: 1, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{mr.SGE(0, len(mem))}})
		a.ok(t, 1, uverbs.WCSend)
		b.ok(t, 2, uverbs.WCRecv)
		if string(b.mr.Bytes()) != string(mem) {
			t.Errorf("%s: the read-only memory did not arrive", name)
		}
		closeAll(t, mr)
		_, err = a.pd.RegMR(mem, uverbs.AccessLocalWrite)
		if !errors.Is(err, syscall.EFAULT) || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("%s: local write on read-only memory: got %v, want EFAULT and why", name, err)
		}
		if _, err := a.pd.RegMR(mem, uverbs.AccessRemoteWrite); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%s: remote write without local write: got %v, want ErrInvalid", name, err)
		}
	}
}

// rw28RemoteReadsReadOnly: a peer reads it.
func (u *Suite) rw28RemoteReadsReadOnly(t *testing.T) {
	mem := readOnly(t, syscall.MAP_PRIVATE)
	a, b := u.pair(t, 8192)
	mr, err := b.pd.RegMR(mem, uverbs.AccessRemoteRead)
	testutil.Must(t, err)
	defer closeAll(t, mr)
	a.send(t, uverbs.SendWR{
		ID: 1, Opcode: uverbs.OpRDMARead, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, 8192)},
		RemoteAddr: mr.Addr(), RKey: mr.RKey(),
	})
	a.ok(t, 1, uverbs.WCRDMARead)
	if string(a.mr.Bytes()) != string(mem) {
		t.Error("the read-only memory did not arrive")
	}
}

// goHeapMemory: the caller's slice may lie on the Go heap.
func (u *Suite) goHeapMemory(t *testing.T) {
	a, b := u.pair(t, 4096)
	src, dst := make([]byte, 3000), make([]byte, 3000)
	testutil.Fill(src, 5)
	from, err := a.pd.RegMR(src, 0)
	testutil.Must(t, err)
	defer closeAll(t, from)
	to, err := b.pd.RegMR(dst, uverbs.AccessLocalWrite)
	testutil.Must(t, err)
	defer closeAll(t, to)
	_, err = b.qp.PostRecv([]uverbs.RecvWR{{ID: 1, SGL: []uverbs.SGE{to.SGE(0, 3000)}}})
	testutil.Must(t, err)
	a.send(t, uverbs.SendWR{ID: 2, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{from.SGE(0, 3000)}})
	a.ok(t, 2, uverbs.WCSend)
	b.ok(t, 1, uverbs.WCRecv)
	if string(src) != string(dst) {
		t.Error("the memories differ")
	}
}

// reregister: access and domain change, the region stays.
func (u *Suite) reregister(t *testing.T) {
	u.needs(t, rereg)
	a, b := u.pair(t, 4096)
	mr := b.region(t, 4096, uverbs.AccessLocalWrite)
	a.mr.Bytes()[0] = 42
	testutil.Must(t, mr.Reregister(uverbs.ReregAccess, nil, nil, fullAccess))
	a.send(t, uverbs.SendWR{
		ID: 1, Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, 1)},
		RemoteAddr: mr.Addr(), RKey: mr.RKey(),
	})
	a.ok(t, 1, uverbs.WCRDMAWrite)
	if mr.Bytes()[0] != 42 {
		t.Error("the write did not arrive")
	}
	if !u.has(t, reregMemory) {
		notSupported(t, "change the memory", mr.Reregister(uverbs.ReregTranslation, nil, make([]byte, 64), 0))
	}
	for what, err := range map[string]error{
		"nothing":                    mr.Reregister(0, nil, nil, 0),
		"unknown flags":              mr.Reregister(1<<7, nil, nil, 0),
		"no domain":                  mr.Reregister(uverbs.ReregPD, nil, nil, 0),
		"a domain of another device": mr.Reregister(uverbs.ReregPD, a.pd, nil, 0),
		"remote write alone":         mr.Reregister(uverbs.ReregAccess, nil, nil, uverbs.AccessRemoteWrite),
	} {
		if !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", what, err)
		}
	}
	pd, err := b.ctx.AllocPD()
	testutil.Must(t, err)
	testutil.Must(t, mr.Reregister(uverbs.ReregPD, pd, nil, 0))
	if err := pd.Close(); !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("close the new domain: got %v, want ErrBusy", err)
	}
	if s := a.writeTo(t, mr); s != uverbs.WCRemoteAccessError {
		t.Errorf("write to a region of another domain: %v, want a remote access error", s)
	}
	testutil.Must(t, mr.Close())
	testutil.Must(t, pd.Close())
	if err := mr.Reregister(uverbs.ReregAccess, nil, nil, 0); !errors.Is(err, net.ErrClosed) {
		t.Errorf("re-register a closed region: got %v, want net.ErrClosed", err)
	}
}

// reregisterMemory: the region goes to other memory, and leaves what it had alone.
func (u *Suite) reregisterMemory(t *testing.T) {
	u.needs(t, rereg)
	u.needs(t, reregMemory)
	a, b := u.pair(t, 4096)
	mr := b.region(t, 4096, fullAccess)
	for i, size := range []int{64, 10_000} {
		old, fresh := mr.Bytes(), make([]byte, size)
		if i == 0 {
			old = nil // of the library, and unmapped
		}
		testutil.Must(t, mr.Reregister(uverbs.ReregTranslation, nil, fresh, 0))
		if mr.Len() != size || &mr.Bytes()[0] != &fresh[0] {
			t.Errorf("the region has %d bytes, want the %d that were given", mr.Len(), size)
		}
		a.mr.Bytes()[0] = byte(100 + i)
		if s := a.writeTo(t, mr); s != uverbs.WCSuccess || fresh[0] != byte(100+i) {
			t.Errorf("write to the new memory: %v, it holds %d", s, fresh[0])
		}
		if old != nil && old[0] != 100 {
			t.Errorf("the memory before holds %d", old[0])
		}
	}
	if err := mr.Reregister(uverbs.ReregTranslation, nil, nil, 0); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("to no memory: got %v, want ErrInvalid", err)
	}
	works(t, a, b)
}

// writeTo writes a byte to a region and returns how that ended.
func (s *side) writeTo(t testing.TB, mr *uverbs.MR) uverbs.WCStatus {
	t.Helper()
	s.send(t, uverbs.SendWR{
		ID: 62, Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{s.mr.SGE(0, 1)},
		RemoteAddr: mr.Addr(), RKey: mr.RKey(),
	})
	wc := s.next(t)
	return wc.Status
}

// memoryRefused: what neither device can do, and what no device could.
func (u *Suite) memoryRefused(t *testing.T) {
	h := u.newHost(t, 4096)
	_, err := h.pd.RegDMABuf(0, 0, 4096, 0, uverbs.AccessLocalWrite)
	notSupported(t, "dma-buf", err)
	for what, err := range map[string]error{
		"no bytes": second(h.pd.AllocMR(0, 0)), "less than none": second(h.pd.AllocMR(-1, 0)),
		"nil": second(h.pd.RegMR(nil, 0)), "empty": second(h.pd.RegMR([]byte{}, 0)),
		"remote atomic alone":   second(h.pd.AllocMR(64, uverbs.AccessRemoteAtomic)),
		"dma-buf without bytes": second(h.pd.RegDMABuf(0, 0, 0, 0, 0)), "dma-buf of no file": second(h.pd.RegDMABuf(-1, 0, 64, 0, 0)),
	} {
		if !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", what, err)
		}
	}
	if mr, err := h.pd.AllocMR(64, uverbs.AccessLocalWrite|uverbs.AccessRelaxedOrdering); err != nil {
		t.Errorf("an optional access flag: %v", err)
	} else {
		closeAll(t, mr)
	}
	mr := h.region(t, 100, uverbs.AccessLocalWrite)
	for _, r := range [][2]int{{0, 101}, {100, 1}, {-1, 1}, {0, -1}, {1 << 40, 0}} {
		s := h.make(t, shape{})
		s.init(t)
		if n, err := s.qp.PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{mr.SGE(r[0], r[1])}}}); n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("piece %v: posted %d, %v; want ErrInvalid", r, n, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// accessIsKept: a peer can do what the region says, not more.
func (u *Suite) accessIsKept(t *testing.T) {
	for _, tt := range []struct {
		access      uverbs.AccessFlags
		read, write bool
	}{
		{uverbs.AccessLocalWrite, false, false},
		{uverbs.AccessRemoteRead, true, false},
		{uverbs.AccessLocalWrite | uverbs.AccessRemoteWrite, false, true},
	} {
		for _, op := range []uverbs.Opcode{uverbs.OpRDMARead, uverbs.OpRDMAWrite} {
			a, b := u.pair(t, 4096)
			mr := b.region(t, 64, tt.access)
			testutil.Fill(a.mr.Bytes(), 1)
			before := string(mr.Bytes())
			a.send(t, uverbs.SendWR{
				ID: 1, Opcode: op, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, 64)},
				RemoteAddr: mr.Addr(), RKey: mr.RKey(),
			})
			wc := a.next(t)
			allowed := op == uverbs.OpRDMARead && tt.read || op == uverbs.OpRDMAWrite && tt.write
			if op == uverbs.OpRDMARead && !u.has(t, remoteReadGuard) {
				allowed = true // siw lets peers read every region of the domain
			}
			if u.byHand(t) || op == uverbs.OpRDMARead { // iWARP completes a write when it has left
				if wc.ID != 1 || (wc.Status == uverbs.WCSuccess) != allowed {
					t.Errorf("access %#x, %v: %+v, want success %v", tt.access, op, wc, allowed)
				}
			}
			if !allowed && string(mr.Bytes()) != before {
				t.Errorf("access %#x, %v: the memory changed", tt.access, op)
			}
		}
	}
}

// advise: pages of an on-demand region are brought in.
func (u *Suite) advise(t *testing.T) {
	u.needs(t, onDemand)
	h := u.newHost(t, 4096)
	attr, err := h.ctx.QueryDevice()
	testutil.Must(t, err)
	if attr.ODPCaps == 0 {
		notSupported(t, "advise without on-demand paging in the kernel", h.pd.AdviseMR(uverbs.AdvicePrefetch, true, []uverbs.SGE{h.mr.SGE(0, 8)}))
		return
	}
	mr := h.region(t, 1<<16, fullAccess|uverbs.AccessOnDemand)
	for _, advice := range []uverbs.Advice{uverbs.AdvicePrefetch, uverbs.AdvicePrefetchWrite, uverbs.AdvicePrefetchNoFault} {
		testutil.Must(t, h.pd.AdviseMR(advice, true, []uverbs.SGE{mr.SGE(0, 1<<16), mr.SGE(100, 5)}))
	}
	for what, sgl := range map[string][]uverbs.SGE{
		"no pieces": nil, "outside": {mr.SGE(1<<16, 1)}, "a pinned region": {mr.SGE(0, 1), h.mr.SGE(0, 8)},
		"a key that is none": {{Addr: mr.Addr(), Length: 8, LKey: mr.LKey() + 1}}, "beyond the region": {{Addr: mr.Addr() + 1<<16, Length: 1, LKey: mr.LKey()}},
	} {
		if err := h.pd.AdviseMR(uverbs.AdvicePrefetch, true, sgl); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", what, err)
		}
	}
}

// rw31NothingStaysPinned: many registrations, and what they pin goes with them.
func (u *Suite) rw31NothingStaysPinned(t *testing.T) {
	h := u.newHost(t, 4096)
	before := testutil.Pinned(t)
	rounds := 1000
	if u.Short {
		rounds = 200
	}
	for i := range rounds {
		mr, err := h.pd.AllocMR(1+i*37%20000, uverbs.AccessLocalWrite)
		testutil.Must(t, err)
		testutil.Must(t, mr.Close())
	}
	if after := testutil.Pinned(t); after > before {
		t.Errorf("%d kB are pinned, %d were at the start", after, before)
	}
}

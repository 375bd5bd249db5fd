//go:build linux

package verbstest

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) queryTests() []test {
	return []test{
		{"QueryDevice", u.queryDevice},
		{"QueryPort", u.queryPort},
		{"QueryPKey", u.queryPKey},
		{"RW35GID", u.rw35GID},
		{"QueryQP", u.queryQP},
		{"RW38Missing", u.rw38Missing},
	}
}

func (u *Suite) queryDevice(t *testing.T) {
	h := u.newHost(t, 4096)
	dev := h.ctx.Device()
	attr, err := h.ctx.QueryDevice()
	testutil.Must(t, err)
	if attr.NodeGUID != dev.NodeGUID() || int(attr.NumPorts) != dev.NumPorts() {
		t.Errorf("device says %+v, the listing GUID %#x and %d ports", attr, dev.NodeGUID(), dev.NumPorts())
	}
	for name, n := range map[string]uint32{
		"MaxQP": attr.MaxQP, "MaxQPWR": attr.MaxQPWR, "MaxSGE": attr.MaxSGE, "MaxSGERead": attr.MaxSGERead, "MaxCQ": attr.MaxCQ,
		"MaxCQE": attr.MaxCQE, "MaxMR": attr.MaxMR, "MaxPD": attr.MaxPD, "MaxQPRDAtom": attr.MaxQPRDAtom,
		"MaxQPInitRDAtom": attr.MaxQPInitRDAtom, "MaxSRQ": attr.MaxSRQ, "MaxSRQWR": attr.MaxSRQWR, "MaxSRQSGE": attr.MaxSRQSGE,
	} {
		if n == 0 {
			t.Errorf("%s is 0", name)
		}
	}
	for f, n := range map[feature]bool{
		windows: attr.MaxMW > 0, datagrams: attr.MaxAH > 0, multicast: attr.MaxMcastGroup > 0, atomics: attr.AtomicCap > 0,
		flushing: attr.CapFlagsEx&(1<<38) != 0, atomicWrite: attr.CapFlagsEx&(1<<40) != 0, onDemand: attr.ODPCaps != 0,
	} {
		if n != u.has(t, f) {
			t.Errorf("%v: the device says %v, the table %v", f, n, u.has(t, f))
		}
	}
}

func (u *Suite) queryPort(t *testing.T) {
	h := u.newHost(t, 4096)
	port, err := h.ctx.QueryPort(1)
	testutil.Must(t, err)
	if port.State != uverbs.PortActive || !port.Ethernet || port.ActiveMTU.Bytes() == 0 || u.byHand(t) && port.MaxMTU < port.ActiveMTU || // siw of 7.2 mixes them up

		port.MaxMessage == 0 || port.GIDTableLen == 0 || (port.PKeyTableLen > 0) != u.has(t, partitions) {
		t.Errorf("port says %+v, want active Ethernet", port)
	}
	speed, err := h.ctx.QueryPortSpeed(1)
	if err != nil || speed <= 0 || speed != port.Rate() {
		t.Errorf("speed is %d Mb/s, %v; want the port's %d", speed, err, port.Rate())
	}
	for _, n := range []uint8{0, 2, 9} {
		if _, err := h.ctx.QueryPort(n); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "port") {
			t.Errorf("port %d: got %v, want EINVAL", n, err)
		}
		if _, err := h.ctx.QueryPortSpeed(n); err == nil {
			t.Errorf("port %d has a speed", n)
		}
	}
}

func (u *Suite) queryPKey(t *testing.T) {
	u.needs(t, partitions)
	h := u.newHost(t, 4096)
	key, err := h.ctx.QueryPKey(1, 0)
	testutil.Must(t, err)
	if key != 0xffff {
		t.Errorf("P_Key 0 is %#x, want 0xffff", key)
	}
	for _, want := range []uint16{0xffff, 0x7fff} { // with and without the membership bit
		if i, err := h.ctx.PKeyIndex(1, want); i != 0 || err != nil {
			t.Errorf("%#x is at index %d, %v; want 0", want, i, err)
		}
	}
	if i, err := h.ctx.PKeyIndex(1, 0x1234); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("0x1234 is at index %d, %v; want ENOENT", i, err)
	}
	for _, i := range []int{-1, 1 << 20} {
		if key, err := h.ctx.QueryPKey(1, i); err == nil {
			t.Errorf("P_Key %d is %#x", i, key)
		}
	}
}

// rw35GID: an entry by address, or by index; and no entry that is not there.
func (u *Suite) rw35GID(t *testing.T) {
	h := u.newHost(t, 4096)
	table, err := h.ctx.GIDTable()
	testutil.Must(t, err)
	if len(table) == 0 {
		t.Fatal("the table is empty")
	}
	for _, e := range table {
		if got, err := h.ctx.QueryGID(uint8(e.Port), e.Index); err != nil || got != e {
			t.Errorf("entry %d is %+v, %v; the table has %+v", e.Index, got, err, e)
		}
	}
	if e, err := h.ctx.QueryGID(1, 200); err == nil {
		t.Errorf("entry 200 is %+v, want an error", e)
	}
	for _, i := range []int{-1, 1 << 20} {
		if _, err := h.ctx.QueryGID(1, i); err == nil {
			t.Errorf("there is an entry %d", i)
		}
	}
	if !u.byHand(t) {
		return // the one GID of an iWARP port is its MAC address
	}
	e := h.routable(t)
	if e.GID.Addr() != u.Addr || e.Type != uverbs.GIDTypeRoCEv2 || e.IfIndex == 0 {
		t.Errorf("the entry of %v is %+v", u.Addr, e)
	}
	if _, err := uverbs.FindGID(table, 1, netip.MustParseAddr("192.0.2.99")); !errors.Is(err, uverbs.ErrInvalid) || !strings.Contains(err.Error(), u.Addr.String()) {
		t.Errorf("an address of nobody: got %v, want an error that shows the table", err)
	}
}

// queryQP: what was set is what is there.
func (u *Suite) queryQP(t *testing.T) {
	a, b := u.pair(t, 4096)
	const all = 1<<21 - 1
	got, err := a.qp.Query(all)
	testutil.Must(t, err)
	if got.State != uverbs.StateRTS || a.qp.State() != uverbs.StateRTS {
		t.Errorf("state is %v, want RTS", got.State)
	}
	if !u.byHand(t) {
		return // iWARP has no more to tell
	}
	want := uverbs.QPAttr{PathMTU: got.PathMTU, DestQPNum: b.qp.Num(), PortNum: 1, Timeout: 14, RetryCnt: retries, RNRRetry: 7, MinRNRTimer: uverbs.DefaultMinRNRTimer}
	if got.DestQPNum != want.DestQPNum || got.PortNum != want.PortNum || got.Timeout != want.Timeout || got.RetryCnt != want.RetryCnt ||
		got.RNRRetry != want.RNRRetry || got.MinRNRTimer != want.MinRNRTimer || got.MaxRDAtomic != 4 || got.MaxDestRDAtomic != 4 {
		t.Errorf("query says %+v, want %+v", got, want)
	}
	const remote = uverbs.AccessRemoteWrite | uverbs.AccessRemoteRead // of local access mlx5 keeps nothing
	if got.AccessFlags&remote != remote || got.AH.DGID != b.routable(t).GID {
		t.Errorf("access %#x, peer %v", got.AccessFlags, got.AH.DGID)
	}
	if got.Cap.MaxSendWR < a.qp.Cap().MaxSendWR || got.Cap.MaxInline != a.qp.Cap().MaxInline {
		t.Errorf("sizes %+v, granted were %+v", got.Cap, a.qp.Cap())
	}
}

// rw38Missing: what neither driver has is refused, with the reason, and hurts nobody.
func (u *Suite) rw38Missing(t *testing.T) {
	a, b := u.pair(t, 4096)
	_, err := a.ctx.OpenXRCD(-1, true, false)
	notSupported(t, "XRC domain", err)
	_, err = a.pd.CreateWQ(&uverbs.WQInitAttr{CQ: a.cq, MaxWR: 4, MaxSGE: 1})
	notSupported(t, "work queue", err)
	_, err = a.qp.CreateFlow(1, 0)
	notSupported(t, "flow", err)
	for _, typ := range []uverbs.QPType{uverbs.QPTypeRawPacket, uverbs.QPTypeXRCSend, uverbs.QPTypeXRCRecv, 77} {
		_, err := a.pd.CreateQP(a.complete(t, shape{Type: typ}))
		notSupported(t, typ.String(), err)
	}
	works(t, a, b)
}

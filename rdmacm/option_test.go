package rdmacm

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/uverbs"
)

func TestSetOptions(t *testing.T) {
	on, off := uint32(1), uint32(0)
	for _, tt := range []struct {
		what        string
		set         func(*ID) error
		level, name uint32
		val         []byte
	}{
		{"type of service", func(id *ID) error { return id.SetTOS(0xb8) }, 0, 0, []byte{0xb8}},
		{"reuse address", func(id *ID) error { return id.SetReuseAddr(true) }, 0, 1, uapi.Bytes(&on)},
		{"own family only", func(id *ID) error { return id.SetAFOnly(true) }, 0, 2, uapi.Bytes(&on)},
		{"own family not only", func(id *ID) error { return id.SetAFOnly(false) }, 0, 2, uapi.Bytes(&off)},
		{"acknowledge timeout", func(id *ID) error { return id.SetAckTimeout(18) }, 0, 3, []byte{18}},
	} {
		s := newScript(t)
		id := mustID(t, s.channel(nil))
		id.kid = 7
		s.uids = map[uint32]uint64{7: id.uid}
		if err := tt.set(id); err != nil {
			t.Errorf("%s: %v", tt.what, err)
			continue
		}
		in := as[abi.RdmaUcmSetOption](s.sent(abi.RDMA_USER_CM_CMD_SET_OPTION)[0])
		in.Optval = 0
		want := abi.RdmaUcmSetOption{Id: 7, Level: tt.level, Optname: tt.name, Optlen: uint32(len(tt.val))}
		if diff := cmp.Diff(want, in); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.what, diff)
		}
		if diff := cmp.Diff(tt.val, s.vals[0]); diff != "" {
			t.Errorf("%s: value (-want +got):\n%s", tt.what, diff)
		}
	}
	id := mustID(t, newScript(t).channel(nil))
	mustBe(t, "timeout of 6 bits", id.SetAckTimeout(32), ErrInvalid, "set option: ")
}

// wirePath is a path record as IBTA volume 1, table 217 has it, field by field.
var wirePath = [64]byte{
	0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, // service id
	0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, // DGID
	0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // SGID
	0x00, 0x22, 0x00, 0x11, // DLID, SLID
	0x81, 0x23, 0x45, 0x40, // raw traffic, 3 bits, flow label 0x12345, hop limit 64
	0x60, 0x83, 0xff, 0xff, // traffic class, reversible and 3 paths, P_Key
	0x01, 0x25, // QoS class 0x012, service level 5
	0x84, 0x83, 0x90, 0x07, // selector 2 with MTU 4, rate 3 and life time 16, preference
	0, 0, 0, 0, 0, 0,
}

func wireRecord() PathRecord {
	return PathRecord{
		Flags: PathGMP | PathPrimary | PathBidirectional, ServiceID: 0x0102030405060708,
		DGID: uverbs.GID{0: 0xfe, 1: 0x80, 15: 2}, SGID: uverbs.GID{0: 0xfe, 1: 0x80, 15: 1}, DLID: 0x22, SLID: 0x11,
		RawTraffic: true, FlowLabel: 0x12345, HopLimit: 64, TrafficClass: 0x60, Reversible: true, NumPaths: 3, PKey: 0xffff,
		QoSClass: 0x012, SL: 5, MTUSelector: 2, MTU: uverbs.MTU2048, RateSelector: 2, Rate: 3, PacketLifeTimeSelector: 2,
		PacketLifeTime: 16, Preference: 7,
	}
}

func TestSetIBPath(t *testing.T) {
	s := newScript(t)
	id := mustID(t, s.channel(nil))
	alternate := wireRecord()
	alternate.Flags = PathAlternate
	if err := id.SetIBPath([]PathRecord{alternate, wireRecord()}); err != nil {
		t.Fatal(err)
	}
	in := as[abi.RdmaUcmSetOption](s.sent(abi.RDMA_USER_CM_CMD_SET_OPTION)[0])
	if in.Level != 1 || in.Optname != 1 || in.Optlen != 2*72 {
		t.Errorf("got %+v, want level 1, option 1, two records of 72 bytes", in)
	}
	flags, zero := uint32(0x2b), uint32(0)
	want := append(append([]byte(nil), uapi.Bytes(&flags)...), append(uapi.Bytes(&zero), wirePath[:]...)...)
	if diff := cmp.Diff(want, s.vals[0][72:]); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	mustBe(t, "no path", id.SetIBPath(nil), ErrInvalid)
	mustBe(t, "no primary path", id.SetIBPath([]PathRecord{alternate}), ErrInvalid, "PathPrimary")
	if n := len(s.vals); n != 1 {
		t.Errorf("%d options reached the kernel, want 1", n)
	}
}

// A kernel that counts more paths than there is room for is not believed.
func TestPath(t *testing.T) {
	s := newScript(t)
	id := mustID(t, s.channel(nil))
	for count, want := range map[uint32]int{0: 0, 1: 1, 2: 2, 7: 6, 1<<32 - 1: 6} {
		var q pathQuery
		q.head.NumPaths = count
		for i := range q.recs {
			q.recs[i].Flags = 0x2b
			copy(uapi.Bytes(&q.recs[i].PathRec), wirePath[:])
		}
		s.other = map[uint32][]byte{abi.RDMA_USER_CM_QUERY_PATH: uapi.Bytes(&q)}
		paths, err := id.Path()
		if err != nil || len(paths) != want {
			t.Fatalf("%d paths: got %d and error %v, want %d", count, len(paths), err, want)
		}
		for i := range paths {
			if diff := cmp.Diff(wireRecord(), paths[i]); diff != "" {
				t.Errorf("path %d (-want +got):\n%s", i, diff)
			}
		}
	}
	if c := s.calls[len(s.calls)-1]; int(c.out) != 8+6*72 || as[abi.RdmaUcmQuery](c.body).Option != 1 {
		t.Errorf("the last query has room for %d bytes, want %d", c.out, 8+6*72)
	}
}

var (
	ibLocal  = AddrIB{GID: uverbs.GID{0: 0xfe, 1: 0x80, 15: 1}, PKey: 0x8001, SID: 0x13f0007, SIDMask: 1<<64 - 1}
	ibRemote = AddrIB{GID: uverbs.GID{0: 0xfe, 1: 0x80, 15: 2}, PKey: 0xffff, FlowInfo: 0x12345, ScopeID: 9, SID: 0x13f1c06, SIDMask: 0xffff}
)

func TestAddrIBBytes(t *testing.T) {
	var s abi.KernelSockaddrStorage
	if n := putSockaddrIB(&s, &ibRemote); n != 48 {
		t.Errorf("got %d bytes, want 48", n)
	}
	family, scope := uint16(27), uint64(9)
	want := append([]byte(nil), uapi.Bytes(&family)...)
	want = append(want, 0xff, 0xff, 0, 1, 0x23, 0x45, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
		0, 0, 0, 0, 0x01, 0x3f, 0x1c, 0x06, 0, 0, 0, 0, 0, 0, 0xff, 0xff)
	want = append(want, uapi.Bytes(&scope)...)
	if diff := cmp.Diff(want, uapi.Bytes(&s)[:48]); diff != "" {
		t.Errorf("address (-want +got):\n%s", diff)
	}
	if got := getSockaddr(&s); !got.isIB || got.ib != ibRemote || got.addr.IsValid() {
		t.Errorf("got %+v back, want %+v", got, ibRemote)
	}
	if got := ServiceID(PortSpaceIB, 7174); got != ibRemote.SID {
		t.Errorf("got service id %#x, want %#x", got, ibRemote.SID)
	}
}

func TestAddressesOfInfiniBand(t *testing.T) {
	s := newScript(t)
	ch := s.channel(scriptTree("  eth0: 1 2\n"))
	id, err := ch.NewID(PortSpaceIB)
	if err != nil {
		t.Fatal(err)
	}
	defer id.Close()
	if id.LocalIB() != (AddrIB{}) {
		t.Errorf("a new id has address %v", id.LocalIB())
	}
	s.ib = [2]*AddrIB{&ibLocal, &ibRemote}
	if err := id.BindIB(ibLocal); err != nil {
		t.Fatal(err)
	}
	if err := id.ResolveIB(&ibLocal, ibRemote, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := id.ResolveIB(nil, ibRemote, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := id.Listen(3); err != nil {
		t.Fatal(err)
	}
	var local, remote, none abi.KernelSockaddrStorage
	putSockaddrIB(&local, &ibLocal)
	putSockaddrIB(&remote, &ibRemote)
	bind := as[abi.RdmaUcmBind](s.sent(abi.RDMA_USER_CM_CMD_BIND)[0])
	if diff := cmp.Diff(abi.RdmaUcmBind{AddrSize: 48, Addr: local}, bind); diff != "" {
		t.Errorf("bind (-want +got):\n%s", diff)
	}
	for i, want := range []abi.RdmaUcmResolveAddr{
		{TimeoutMs: 2000, SrcSize: 48, DstSize: 48, SrcAddr: local, DstAddr: remote},
		{TimeoutMs: 2000, DstSize: 48, SrcAddr: none, DstAddr: remote},
	} {
		got := as[abi.RdmaUcmResolveAddr](s.sent(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR)[i])
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("resolve (-want +got):\n%s", diff)
		}
	}
	if id.LocalIB() != ibLocal || id.RemoteIB() != ibRemote || id.LocalAddr().IsValid() || id.PortNum() != 1 {
		t.Errorf("got %v to %v on port %d, %v", id.LocalIB(), id.RemoteIB(), id.PortNum(), id.LocalAddr())
	}
	// Without the addresses of IP there is more room for private data.
	p := ConnParam{PrivateData: make([]byte, 93), ResponderResources: None, InitiatorDepth: None}
	mustBe(t, "connect", id.Connect(p), ErrInvalid, "up to 92")
	s.fail[abi.RDMA_USER_CM_CMD_BIND] = errnoNotSupp
	mustBe(t, "bind", id.BindIB(ibLocal), errnoNotSupp, "bind [fe80::1] service 0x13f0007/0xffffffffffffffff: ")
}

func TestGIDs(t *testing.T) {
	s := newScript(t)
	id := mustID(t, s.channel(nil))
	var q abi.RdmaUcmQueryAddrResp
	putSockaddrIB(&q.SrcAddr, &ibLocal)
	putSockaddrIB(&q.DstAddr, &ibRemote)
	s.other = map[uint32][]byte{abi.RDMA_USER_CM_QUERY_GID: uapi.Bytes(&q)}
	local, remote, err := id.GIDs()
	if err != nil || local != ibLocal.GID || remote != ibRemote.GID {
		t.Errorf("got %v, %v and error %v, want %v and %v", local, remote, err, ibLocal.GID, ibRemote.GID)
	}
	if in := as[abi.RdmaUcmQuery](s.sent(abi.RDMA_USER_CM_CMD_QUERY)[0]); in.Option != 2 {
		t.Errorf("got option %d, want 2", in.Option)
	}
	// A kernel that answers with something else.
	if _, err := putSockaddr(&q.SrcAddr, netip.MustParseAddrPort("10.9.0.1:1")); err != nil {
		t.Fatal(err)
	}
	if local, _, err = id.GIDs(); err != nil || local != (uverbs.GID{}) {
		t.Errorf("got %v and error %v, want none", local, err)
	}
}

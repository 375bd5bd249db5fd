package rdmacm

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/uverbs"
)

func TestResolveService(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id := mustID(t, ch)
	for i, tt := range []struct {
		s    Service
		want abi.RdmaUcmIbService
	}{
		{Service{ID: 0x1122334455667788}, abi.RdmaUcmIbService{ServiceId: 0x1122334455667788, Flags: 1}},
		{Service{Name: "db"}, abi.RdmaUcmIbService{ServiceName: [64]uint8{'d', 'b'}, Flags: 2}},
		{Service{ID: 1, Name: "db"}, abi.RdmaUcmIbService{ServiceId: 1, ServiceName: [64]uint8{'d', 'b'}, Flags: 3}},
	} {
		if err := id.ResolveService(tt.s); err != nil {
			t.Fatal(err)
		}
		got := as[abi.RdmaUcmResolveIbService](s.sent(abi.RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE)[i])
		if diff := cmp.Diff(abi.RdmaUcmResolveIbService{Id: id.kid, Ibs: tt.want}, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.s, diff)
		}
	}
	mustBe(t, "no service", id.ResolveService(Service{}), ErrInvalid)
	mustBe(t, "long name", id.ResolveService(Service{Name: strings.Repeat("x", 64)}), ErrInvalid, "too long")
	s.remote = netip.MustParseAddrPort("10.9.0.2:1")
	s.put(id.kid, EventServiceResolved, 0)
	if ev := next(t, ch); ev.Type != EventServiceResolved || ev.Err != nil || id.RemoteAddr() != s.remote {
		t.Errorf("got %+v with peer %v, want it resolved to %v", ev, id.RemoteAddr(), s.remote)
	}
	s.put(id.kid, EventServiceError, -2)
	mustBe(t, "nobody offers it", next(t, ch).Err, syscall.ENOENT, "resolve service")
}

// What the errno of a new command means depends on whether the kernel knows the command: it is
// asked about an id that nobody has.
func TestNewCommands(t *testing.T) {
	resolve := func(id *ID) error { return id.ResolveService(Service{ID: 1}) }
	write := func(id *ID) error { return id.WriteEvent(EventUser, 0, 1) }
	for _, tt := range []struct {
		name         string
		cmd          uint32
		do           func(*ID) error
		first, probe syscall.Errno
		want         error
		calls        int
		words        string
	}{
		{"6.12", 23, resolve, syscall.EINVAL, syscall.EINVAL, ErrNotSupported, 2, "resolve service: not supported: this kernel is too old; 7.2 has it"},
		{"6.12", 24, write, syscall.EINVAL, syscall.EINVAL, ErrNotSupported, 2, "write event: not supported: this kernel is too old; 7.2 has it"},
		{"command left out", 24, write, syscall.ENOSYS, 0, ErrNotSupported, 1, "too old"},
		{"7.2, wrong state", 23, resolve, syscall.EINVAL, syscall.ENOENT, syscall.EINVAL, 2, "resolve service: invalid argument"},
		{"7.2, not InfiniBand", 23, resolve, syscall.EOPNOTSUPP, 0, ErrNotSupported, 1, "not on InfiniBand"},
		{"7.2, no memory", 24, write, syscall.ENOMEM, 0, syscall.ENOMEM, 1, "write event: "},
	} {
		s := newScript(t)
		id := mustID(t, s.channel(nil))
		s.fail[tt.cmd] = tt.first
		s.failFor = map[uint32]error{nobody: tt.probe}
		mustBe(t, tt.name, tt.do(id), tt.want, tt.words)
		if n := len(s.sent(tt.cmd)); n != tt.calls {
			t.Errorf("%s: %d commands, want %d", tt.name, n, tt.calls)
		}
	}
}

func TestServiceRecords(t *testing.T) {
	s := newScript(t)
	id := mustID(t, s.channel(nil))
	var q serviceQuery
	q.recs[0] = abi.IbUserServiceRec{
		Id: abi.ToBE64(0x1122334455667788), Gid: ibLocal.GID, Pkey: abi.ToBE16(0xffff), Lease: abi.ToBE32(60), Key: [16]uint8{1},
		Name: [64]uint8{'d', 'b'}, Data8: [16]uint8{15: 8}, Data16: [8]abi.BE16{7: abi.ToBE16(16)},
		Data32: [4]abi.BE32{3: abi.ToBE32(32)}, Data64: [2]abi.BE64{1: abi.ToBE64(64)},
	}
	for i := range q.recs[1].Name {
		q.recs[1].Name[i] = 'x' // without an end
	}
	for count, want := range map[uint32]int{0: 0, 2: 2, 65: 64, 1<<32 - 1: 64} {
		q.head.NumServiceRecs = count
		s.other = map[uint32][]byte{abi.RDMA_USER_CM_QUERY_IB_SERVICE: uapi.Bytes(&q)}
		recs, err := id.ServiceRecords()
		if err != nil || len(recs) != want {
			t.Fatalf("%d records: got %d and error %v, want %d", count, len(recs), err, want)
		}
		if count != 2 {
			continue
		}
		record := ServiceRecord{
			ID: 0x1122334455667788, GID: uverbs.GID(ibLocal.GID), PKey: 0xffff, Lease: 60, Key: [16]byte{1}, Name: "db", Data8: [16]byte{15: 8},
			Data16: [8]uint16{7: 16}, Data32: [4]uint32{3: 32}, Data64: [2]uint64{1: 64},
		}
		if diff := cmp.Diff(record, recs[0]); diff != "" {
			t.Errorf("record (-want +got):\n%s", diff)
		}
		if recs[1].Name != strings.Repeat("x", 64) {
			t.Errorf("got name %q", recs[1].Name)
		}
	}
	for errno, want := range map[syscall.Errno]error{syscall.ENOSYS: ErrNotSupported, syscall.ENODATA: syscall.ENODATA} {
		s.fail[abi.RDMA_USER_CM_CMD_QUERY] = errno
		_, err := id.ServiceRecords()
		mustBe(t, "query", err, want, "query service")
	}
}

func TestWriteEvent(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id := mustID(t, ch)
	if err := id.WriteEvent(EventInternal, -5, 0x1122334455667788); err != nil {
		t.Fatal(err)
	}
	want := abi.RdmaUcmWriteCmEvent{Id: id.kid, Event: 19, Status: 1<<32 - 5}
	*want.ParamArg() = 0x1122334455667788
	if diff := cmp.Diff(want, as[abi.RdmaUcmWriteCmEvent](s.sent(abi.RDMA_USER_CM_CMD_WRITE_CM_EVENT)[0])); diff != "" {
		t.Errorf("command (-want +got):\n%s", diff)
	}
	r := &abi.RdmaUcmEventResp{Uid: id.uid, Id: id.kid, Event: 19, Status: want.Status}
	copy(uapi.Bytes(&r.Param), uapi.Bytes(want.ParamArg()))
	s.events <- r
	if ev := next(t, ch); ev.Type != EventInternal || ev.Status != -5 || ev.Arg != 0x1122334455667788 || ev.Err != nil {
		t.Errorf("got %+v, want what was written", ev)
	}
	mustBe(t, "another event", id.WriteEvent(EventEstablished, 0, 0), ErrInvalid)
	s.request(id)
	req := next(t, ch).ID
	mustBe(t, "a request", req.WriteEvent(EventUser, 0, 0), ErrInvalid, "accepted")
	req.Close()
}

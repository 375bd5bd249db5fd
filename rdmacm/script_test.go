package rdmacm

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/internal/uapi"
)

// script is an rdma_cm file that does nothing of itself: it notes what is asked, answers
// what it was told to answer, and has the events that a test puts in. Kernel ids count from
// 0, which is a valid one. What a kernel would do is the fake kernel's part.
type script struct {
	t *testing.T

	mu    sync.Mutex
	calls []call
	next  uint32
	uids  map[uint32]uint64 // live ids
	fail  map[uint32]error  // by command
	// by id, for commands that fail and begin with one
	failFor map[uint32]error
	hooks   map[uint32]func(kid uint32)
	local   netip.AddrPort // what QUERY answers; a device when valid
	remote  netip.AddrPort
	ib      [2]*AddrIB        // the same in place of IP
	other   map[uint32][]byte // what QUERY answers to other questions
	vals    [][]byte          // of SET_OPTION
	groups  map[uint32]uint32 // live memberships and their ids

	fd    uint32             // of the descriptor, in fds
	fds   map[uint32]*script // to migrate from, nil: no descriptor
	moved []*abi.RdmaUcmEventResp

	events  chan *abi.RdmaUcmEventResp
	waiting chan struct{} // a GET_EVENT waits
	closed  chan struct{}
	once    sync.Once
}

// call is a command as the kernel gets it.
type call struct {
	cmd  uint32
	out  uint16
	body []byte
}

const (
	scriptGUID = 0x505400fffe123456 // of the device in scriptTree
	scriptDev  = 10<<8 | 126
)

func newScript(t *testing.T) *script {
	return &script{
		t: t, uids: map[uint32]uint64{}, groups: map[uint32]uint32{}, fail: map[uint32]error{},
		events: make(chan *abi.RdmaUcmEventResp, 64), waiting: make(chan struct{}, 1), closed: make(chan struct{}),
	}
}

// channel opens an event channel on the script, on a system with the devices of the tree.
func (s *script) channel(files map[string]string) *EventChannel {
	s.t.Helper()
	testutil.NoLeaks(s.t)
	ch, err := NewEventChannel(WithSystem(s.system(files)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := ch.Close(); err != nil {
			s.t.Errorf("close event channel: %v", err)
		}
		if len(s.uids) > 0 {
			s.t.Errorf("%d ids are left in the kernel", len(s.uids))
		}
	})
	return ch
}

func (s *script) system(files map[string]string) *discover.System {
	root := s.t.TempDir()
	all := map[string]string{"sys/class/misc/rdma_cm/dev": "10:126\n", "sys/class/misc/rdma_cm/abi_version": "4\n",
		"sys/class/infiniband_verbs/abi_version": "6\n"}
	for name, content := range files {
		all[name] = content
	}
	for name, content := range all {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			s.t.Fatal(err)
		}
	}
	return &discover.System{
		Root: root, Opener: s,
		Netlink: func() (discover.Transport, error) { return nil, syscall.EPROTONOSUPPORT },
	}
}

// scriptTree is a RoCE device on eth0 whose node cannot be opened.
func scriptTree(netdevs string) map[string]string {
	const verbs, ib = "sys/class/infiniband_verbs/uverbs0/", "sys/class/infiniband/rxe0/"
	return map[string]string{
		verbs + "ibdev": "rxe0\n", verbs + "dev": "231:192\n", verbs + "abi_version": "2\n",
		ib + "node_guid": "5054:00ff:fe12:3456\n", ib + "node_type": "1: CA\n", ib + "node_desc": "rxe\n",
		ib + "ports/1/link_layer": "Ethernet\n", ib + "ports/1/gids/0": "0000:0000:0000:0000:0000:ffff:0a09:0001\n",
		ib + "ports/1/gid_attrs/types/0": "RoCE v2\n", ib + "ports/1/gid_attrs/ndevs/0": "eth0\n",
		"proc/thread-self/net/dev": "Inter-| Receive\n face |bytes\n" + netdevs,
	}
}

func (s *script) Open(path string) (uapi.File, error) {
	if path != "/dev/infiniband/rdma_cm" {
		return nil, &os.PathError{Op: "open", Path: path, Err: syscall.ENOENT}
	}
	return s, nil
}

func (s *script) Stat(path string) (uint64, error) {
	if path != "/dev/infiniband/rdma_cm" {
		return 0, &os.PathError{Op: "stat", Path: path, Err: syscall.ENOENT}
	}
	return scriptDev, nil
}

func (s *script) Adopt(int32) (uapi.File, error)         { return nil, syscall.EINVAL }
func (s *script) AdoptBlocking(int32) (uapi.File, error) { return nil, syscall.EINVAL }

func (s *script) Read(context.Context, []byte) (int, error) { return 0, syscall.EINVAL }

func (s *script) Map(int64, int, int) ([]byte, error) { return nil, syscall.ENODEV }

func (s *script) Unmap([]byte) error { return syscall.EINVAL }

func (s *script) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

func (s *script) Write(ctx context.Context, p []byte) (int, error) {
	select {
	case <-s.closed:
		return 0, net.ErrClosed
	default:
	}
	c := call{cmd: binary.NativeEndian.Uint32(p), out: binary.NativeEndian.Uint16(p[6:]), body: append([]byte(nil), p[8:]...)}
	if n := binary.NativeEndian.Uint16(p[4:]); int(n) != len(c.body) {
		s.t.Errorf("command %d has %d bytes, its header says %d", c.cmd, len(c.body), n)
	}
	if c.cmd == abi.RDMA_USER_CM_CMD_GET_EVENT {
		return len(p), s.getEvent(ctx, c)
	}
	if ctx != nil {
		s.t.Errorf("command %d waits", c.cmd)
	}
	if err := s.answer(c); err != nil {
		return 0, err
	}
	s.mu.Lock()
	hook := s.hooks[c.cmd]
	s.mu.Unlock()
	if hook != nil {
		hook(binary.NativeEndian.Uint32(c.body[kidAt[c.cmd]:]))
	}
	return len(p), nil
}

// kidAt is where the commands that hooks are for have the id.
var kidAt = map[uint32]int{abi.RDMA_USER_CM_CMD_DESTROY_ID: 8}

func (s *script) getEvent(ctx context.Context, c call) error {
	s.mu.Lock()
	err := s.fail[c.cmd]
	s.mu.Unlock()
	if err != nil {
		return err
	}
	give := func(r *abi.RdmaUcmEventResp) error {
		in := as[abi.RdmaUcmGetEvent](c.body)
		copy(memory(in.Response, int(c.out)), uapi.Bytes(r))
		return nil
	}
	if r := s.present(); r != nil {
		return give(r)
	}
	if ctx == nil {
		return syscall.EAGAIN
	}
	select {
	case s.waiting <- struct{}{}:
	default:
	}
	select {
	case r := <-s.events:
		return give(r)
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return net.ErrClosed
	}
}

// present is the next event, if there is one. One that was migrated wakes nobody.
func (s *script) present() *abi.RdmaUcmEventResp {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.moved) > 0 {
		r := s.moved[0]
		s.moved = s.moved[1:]
		return r
	}
	select {
	case r := <-s.events:
		return r
	default:
		return nil
	}
}

// migrate takes over an id of another script with what waits for it.
func (s *script) migrate(c call) error {
	in := as[abi.RdmaUcmMigrateId](c.body)
	from := s.fds[in.Fd]
	if from == nil {
		return syscall.ENOENT
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	uid, ok := from.uids[in.Id]
	if !ok {
		return syscall.EINVAL
	}
	uids := []uint64{uid}
	delete(from.uids, in.Id)
	s.uids[in.Id] = uid
	for m, id := range from.groups {
		if id == in.Id {
			uids = append(uids, from.uids[m])
			s.uids[m], s.groups[m] = from.uids[m], id
			delete(from.uids, m)
			delete(from.groups, m)
		}
	}
	stay := from.moved[:0]
	for _, r := range from.moved {
		if slices.Contains(uids, r.Uid) {
			s.moved = append(s.moved, r)
		} else {
			stay = append(stay, r)
		}
	}
	from.moved = stay
	for range len(from.events) {
		if r := <-from.events; slices.Contains(uids, r.Uid) {
			s.moved = append(s.moved, r)
		} else {
			from.events <- r
		}
	}
	return nil
}

// SyscallConn makes the script a file with a descriptor, see link.
func (s *script) SyscallConn() (syscall.RawConn, error) {
	if s.fds == nil {
		return nil, syscall.EBADF
	}
	return scriptConn(s.fd), nil
}

type scriptConn uintptr

func (c scriptConn) Control(f func(uintptr)) error {
	f(uintptr(c))
	return nil
}
func (scriptConn) Read(func(uintptr) bool) error  { return syscall.EINVAL }
func (scriptConn) Write(func(uintptr) bool) error { return syscall.EINVAL }

// link gives scripts descriptors, and numbers for their ids that are their own.
func link(all ...*script) {
	fds := map[uint32]*script{}
	for i, s := range all {
		s.fd, s.fds, s.next = uint32(i), fds, uint32(100*i)
		fds[s.fd] = s
	}
}

// answer runs a command.
func (s *script) answer(c call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
	if err := s.fail[c.cmd]; err != nil {
		if other, ok := s.failFor[binary.NativeEndian.Uint32(c.body)]; ok {
			return other
		}
		return err
	}
	switch c.cmd {
	case abi.RDMA_USER_CM_CMD_CREATE_ID:
		in := as[abi.RdmaUcmCreateId](c.body)
		out := abi.RdmaUcmCreateIdResp{Id: s.next}
		s.uids[s.next] = in.Uid
		s.next++
		copy(memory(in.Response, int(c.out)), uapi.Bytes(&out))
	case abi.RDMA_USER_CM_CMD_DESTROY_ID:
		in := as[abi.RdmaUcmDestroyId](c.body)
		if _, ok := s.uids[in.Id]; !ok {
			return syscall.ENOENT
		}
		delete(s.uids, in.Id)
		for m, id := range s.groups {
			if id == in.Id {
				delete(s.uids, m)
			}
		}
		// Counts that nobody may wait for.
		out := abi.RdmaUcmDestroyIdResp{EventsReported: 99}
		copy(memory(in.Response, int(c.out)), uapi.Bytes(&out))
	case abi.RDMA_USER_CM_CMD_QUERY:
		in := as[abi.RdmaUcmQuery](c.body)
		if b, ok := s.other[in.Option]; ok {
			copy(memory(in.Response, int(c.out)), b)
		} else {
			copy(memory(in.Response, int(c.out)), s.query())
		}
	case abi.RDMA_USER_CM_CMD_SET_OPTION:
		in := as[abi.RdmaUcmSetOption](c.body)
		s.vals = append(s.vals, append([]byte(nil), memory(in.Optval, int(in.Optlen))...))
	case abi.RDMA_USER_CM_CMD_MIGRATE_ID:
		return s.migrate(c)
	case abi.RDMA_USER_CM_CMD_JOIN_MCAST:
		in := as[abi.RdmaUcmJoinMcast](c.body)
		out := abi.RdmaUcmCreateIdResp{Id: s.next}
		s.uids[s.next], s.groups[s.next] = in.Uid, in.Id
		s.next++
		copy(memory(in.Response, int(c.out)), uapi.Bytes(&out))
	case abi.RDMA_USER_CM_CMD_LEAVE_MCAST:
		in := as[abi.RdmaUcmDestroyId](c.body)
		if _, ok := s.uids[in.Id]; !ok {
			return syscall.ENOENT
		}
		delete(s.uids, in.Id)
	case abi.RDMA_USER_CM_CMD_ACCEPT:
		if in := as[abi.RdmaUcmAccept](c.body); in.ConnParam.Valid != 0 {
			s.uids[in.Id] = in.Uid
		}
	}
	return nil
}

func (s *script) query() []byte {
	out := abi.RdmaUcmQueryAddrResp{}
	if s.local.IsValid() {
		out.NodeGuid, out.PortNum = uint64(abi.ToBE64(scriptGUID)), 1
		out.SrcSize, _ = putSockaddr(&out.SrcAddr, s.local)
	}
	if s.remote.IsValid() {
		out.DstSize, _ = putSockaddr(&out.DstAddr, s.remote)
	}
	if s.ib[0] != nil {
		out.NodeGuid, out.PortNum = uint64(abi.ToBE64(scriptGUID)), 1
		out.SrcSize = putSockaddrIB(&out.SrcAddr, s.ib[0])
	}
	if s.ib[1] != nil {
		out.DstSize = putSockaddrIB(&out.DstAddr, s.ib[1])
	}
	return uapi.Bytes(&out)
}

// sent returns the bodies of the commands of that kind.
func (s *script) sent(cmd uint32) (bodies [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.cmd == cmd {
			bodies = append(bodies, c.body)
		}
	}
	return bodies
}

// put makes an event of an id, whose kernel number is kid.
func (s *script) put(kid uint32, typ EventType, status int32, private ...byte) {
	s.mu.Lock()
	uid := s.uids[kid]
	s.mu.Unlock()
	s.putUID(uid, kid, typ, status, private...)
}

func (s *script) putUID(uid uint64, kid uint32, typ EventType, status int32, private ...byte) {
	r := &abi.RdmaUcmEventResp{Uid: uid, Id: kid, Event: uint32(typ), Status: uint32(status)}
	p := r.ParamConn()
	p.PrivateDataLen = uint8(copy(p.PrivateData[:], private))
	s.events <- r
}

// request makes a connection request on a listener and returns the kernel number of its id.
func (s *script) request(listener *ID, private ...byte) uint32 {
	s.mu.Lock()
	kid := s.next
	s.next++
	s.uids[kid] = 0
	s.mu.Unlock()
	s.putUID(listener.uid, kid, EventConnectRequest, 0, private...)
	return kid
}

// next receives an event.
func next(t *testing.T, ch *EventChannel) *Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ev, err := ch.NextEvent(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// quiet checks that nothing is left to report: the next event is one that comes now.
func quiet(t *testing.T, ch *EventChannel) {
	t.Helper()
	marker, err := ch.NewID(PortSpaceTCP)
	if err != nil {
		t.Fatal(err)
	}
	defer marker.Close()
	ch.file.(*script).put(marker.kid, EventAddrChange, 0)
	if ev := next(t, ch); ev.ID != marker {
		t.Errorf("got event %v (%v), want none", ev.Type, ev.Err)
	}
}

func mustID(t *testing.T, ch *EventChannel) *ID {
	t.Helper()
	id, err := ch.NewID(PortSpaceTCP)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := id.Close(); err != nil {
			t.Errorf("close id: %v", err)
		}
	})
	return id
}

package discover

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

func TestAddLink(t *testing.T) {
	k := &fakeNL{t: t}
	if err := k.system(nil, nil).AddLink("rxe0", "rxe", "eth0"); err != nil {
		t.Fatal(err)
	}
	if len(k.requests) != 1 || k.requests[0].Header.Flags != netlink.Request|netlink.Acknowledge {
		t.Fatalf("got requests %+v, want one that asks for an acknowledgement", k.requests)
	}
	want := map[uint16][]byte{
		abi.RDMA_NLDEV_ATTR_DEV_NAME:  []byte("rxe0\x00"),
		abi.RDMA_NLDEV_ATTR_LINK_TYPE: []byte("rxe\x00"),
		abi.RDMA_NLDEV_ATTR_NDEV_NAME: []byte("eth0\x00"),
	}
	if diff := cmp.Diff(want, attributes(t, k.requests[0].Data)); diff != "" {
		t.Errorf("attributes (-want +got)\n%s", diff)
	}
	if k.open != 0 {
		t.Errorf("sockets left open: got %d, want 0", k.open)
	}
}

func TestAddLinkErrors(t *testing.T) {
	tests := []struct {
		typ   string
		errno syscall.Errno
		kind  error
		words []string
	}{
		{"rxe", syscall.EEXIST, fs.ErrExist, []string{"add link l0 of type rxe on eth0", "exists"}},
		{"rxe", syscall.EPERM, ErrNoPermission, []string{"CAP_NET_ADMIN", "VLAN"}},
		{"siw", syscall.EPERM, ErrNoPermission, []string{"CAP_NET_ADMIN"}},
		{"siw", syscall.ENODEV, ErrNoInterface, []string{"no interface eth0"}},
		{"rxe", syscall.EINVAL, ErrNoModule, []string{"modprobe rdma_rxe"}},
		{"siw", syscall.EINVAL, ErrNoModule, []string{"modprobe siw"}},
		{"siw", syscall.EPROTONOSUPPORT, ErrNoModule, []string{"ib_core"}},
		{"siw", syscall.ENOMEM, syscall.ENOMEM, []string{"add link"}},
	}
	for _, tt := range tests {
		k := &fakeNL{t: t, fail: map[uint16]error{abi.RDMA_NLDEV_CMD_NEWLINK: tt.errno}}
		err := k.system(nil, nil).AddLink("l0", tt.typ, "eth0")
		mustError(t, err, tt.kind, tt.words...)
		mustError(t, err, tt.errno)
	}
}

func TestAddLinkNames(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, names := range [][3]string{
		{"", "rxe", "eth0"}, {"rxe%d", "rxe", "eth0"}, {"a/b", "rxe", "eth0"}, {long, "rxe", "eth0"}, {"a\x00b", "rxe", "eth0"},
		{"rxe0", "", "eth0"}, {"rxe0", long[:16], "eth0"}, {"rxe0", "rxe", ""}, {"rxe0", "rxe", long[:16]},
	} {
		k := &fakeNL{t: t}
		if err := k.system(nil, nil).AddLink(names[0], names[1], names[2]); err == nil || len(k.requests) != 0 {
			t.Errorf("%q: got error %v after %d requests, want an error and none", names, err, len(k.requests))
		}
	}
}

func TestDelLink(t *testing.T) {
	k := &fakeNL{t: t, devs: []fakeDev{rxe(3, "rxe0", "eth0"), rxe(4, "rxe1", "eth1")}}
	s := k.system(nil, nil)
	if err := s.DelLink("rxe1"); err != nil {
		t.Fatal(err)
	}
	if len(k.devs) != 1 || k.devs[0].name != "rxe0" {
		t.Errorf("left over: got %+v, want rxe0", k.devs)
	}
	mustError(t, s.DelLink("rxe1"), ErrNoDevice, "delete link rxe1", "there is rxe0")
	k.fail = map[uint16]error{abi.RDMA_NLDEV_CMD_DELLINK: syscall.EPERM}
	mustError(t, s.DelLink("rxe0"), ErrNoPermission, "CAP_NET_ADMIN")
	k.fail = map[uint16]error{abi.RDMA_NLDEV_CMD_DELLINK: syscall.EINVAL}
	mustError(t, s.DelLink("rxe0"), syscall.EINVAL, "does not let links be deleted")
	k.fail = map[uint16]error{abi.RDMA_NLDEV_CMD_GET: syscall.ENOMEM}
	mustError(t, s.DelLink("rxe0"), syscall.ENOMEM)
}

func TestLinkWithoutNetlink(t *testing.T) {
	s := refusing(t, syscall.EPROTONOSUPPORT, nil, nil)
	mustError(t, s.AddLink("rxe0", "rxe", "eth0"), ErrNoModule, "add link", "ib_core")
	mustError(t, s.DelLink("rxe0"), ErrNoModule, "delete link", "ib_core")
	s.Netlink = func() (Transport, error) { return nil, uapi.ErrNotLinux }
	for _, err := range []error{s.AddLink("rxe0", "rxe", "eth0"), s.DelLink("rxe0"), errOf(s.Devices()), errOf(s.CM()), errOf(s.Mode())} {
		mustError(t, err, uapi.ErrNotLinux, "RDMA needs Linux")
		if errors.Is(err, ErrNoModule) {
			t.Errorf("got %v, want no talk of modules", err)
		}
	}
}

// errOf returns the error of a pair.
func errOf[T any](_ T, err error) error { return err }

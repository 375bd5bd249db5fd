package discover

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
)

func TestCM(t *testing.T) {
	want := CharDev{SysName: "rdma_cm", Node: "/dev/infiniband/rdma_cm", Dev: MakeDev(10, 126), ABI: 4}
	k := &fakeNL{t: t, cm: &fakeDev{chardev: "rdma_cm", dev: MakeDev(10, 126)}}
	files := sysfsFiles("rxe0", "uverbs0", "231:192")
	for name, s := range map[string]*System{
		"netlink": k.system(present(0), nil),
		"sysfs":   refusing(t, syscall.EPERM, present(0), files),
	} {
		got, err := s.CM()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

func TestRW20NoConnectionManager(t *testing.T) {
	_, err := (&fakeNL{t: t}).system(nil, nil).CM()
	mustError(t, err, ErrNoModule, "find rdma_cm", "rdma_ucm is not loaded", "modprobe rdma_ucm")
	_, err = refusing(t, syscall.EPERM, nil, map[string]string{"sys/class/infiniband/": ""}).CM()
	mustError(t, err, ErrNoModule, "rdma_ucm is not loaded")
	_, err = refusing(t, syscall.EPROTONOSUPPORT, nil, nil).CM()
	mustError(t, err, ErrNoModule, "find rdma_cm", "ib_core is not loaded")
}

// TestRW20NodeOfConnectionManagerMissing: the module is there, the node is not.
func TestRW20NodeOfConnectionManagerMissing(t *testing.T) {
	k := &fakeNL{t: t, cm: &fakeDev{chardev: "rdma_cm", dev: MakeDev(10, 126)}}
	cd, err := k.system(nil, nil).CM()
	if err != nil {
		t.Fatal(err)
	}
	mustError(t, cd.Reason, ErrNoNode, "/dev/infiniband/rdma_cm is not here", "--device /dev/infiniband/rdma_cm")
}

func TestCMSysfsFaults(t *testing.T) {
	base := sysfsFiles("rxe0", "uverbs0", "231:192")
	for _, changes := range []map[string]string{
		{"sys/class/misc/rdma_cm/dev": "10:12"},
		{"sys/class/misc/rdma_cm/dev": "10\n"},
		{"sys/class/misc/rdma_cm/dev": "5000:1\n"},
		{"sys/class/misc/rdma_cm/abi_version": "four\n"},
		{"sys/class/misc/rdma_cm/abi_version": ""},
	} {
		if cd, err := refusing(t, syscall.EPERM, present(0), with(base, changes)).CM(); err == nil {
			t.Errorf("%v: got %+v, want an error", changes, cd)
		}
	}
}

func TestMode(t *testing.T) {
	tests := []struct {
		name string
		sys  map[uint16]uint8
		want Mode
	}{
		{"5.10", map[uint16]uint8{abi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE: 1}, Mode{}},
		{"exclusive", map[uint16]uint8{abi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE: 0}, Mode{Exclusive: true}},
		{"7.2", map[uint16]uint8{
			abi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE: 1, abi.RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK: 1,
			abi.RDMA_NLDEV_SYS_ATTR_PRIVILEGED_QKEY_MODE: 1, abi.RDMA_NLDEV_SYS_ATTR_MONITOR_MODE: 1,
		}, Mode{CopyOnFork: true, PrivilegedQKey: true, Monitor: true}},
	}
	for _, tt := range tests {
		k := &fakeNL{t: t, sys: tt.sys}
		if got, err := k.system(nil, nil).Mode(); got != tt.want || err != nil {
			t.Errorf("%s: got %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
	if m, err := (&fakeNL{t: t}).system(nil, nil).Mode(); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("answer without the mode: got %+v, %v, want an error", m, err)
	}
}

func TestModeFromSysfs(t *testing.T) {
	param := "sys/module/ib_core/parameters/netns_mode"
	for content, want := range map[string]Mode{"Y\n": {}, "N\n": {Exclusive: true}} {
		s := refusing(t, syscall.EPERM, nil, map[string]string{param: content})
		if got, err := s.Mode(); got != want || err != nil {
			t.Errorf("%q: got %+v, %v, want %+v", content, got, err, want)
		}
	}
	for _, files := range []map[string]string{{param: "?\n"}, {"sys/class/infiniband/": ""}} {
		if m, err := refusing(t, syscall.EPERM, nil, files).Mode(); err == nil || errors.Is(err, ErrNoModule) {
			t.Errorf("%v: got %+v, %v, want an error that does not blame a module", files, m, err)
		}
	}
	_, err := refusing(t, syscall.EPROTONOSUPPORT, nil, nil).Mode()
	mustError(t, err, ErrNoModule, "ib_core")
}

package discover

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
)

// sysfsFiles is the part of /sys that shows one RoCE device with one port, two
// GIDs in a table of three, and a partition key.
func sysfsFiles(name, sysName, dev string) map[string]string {
	verbs, ib := "sys/class/infiniband_verbs/", "sys/class/infiniband/"+name+"/"
	return map[string]string{
		verbs + "abi_version":                      "6\n",
		verbs + sysName + "/ibdev":                 name + "\n",
		verbs + sysName + "/dev":                   dev + "\n",
		verbs + sysName + "/abi_version":           "2\n",
		ib + "node_guid":                           "5054:00ff:fe12:3456\n",
		ib + "node_type":                           "1: CA\n",
		ib + "node_desc":                           "rxe\n",
		ib + "fw_ver":                              "1.2.3\n",
		ib + "ports/1/link_layer":                  "Ethernet\n",
		ib + "ports/1/pkeys/0":                     "0xffff\n",
		ib + "ports/1/gids/0":                      "fe80:0000:0000:0000:5054:00ff:fe12:3456\n",
		ib + "ports/1/gids/1":                      "0000:0000:0000:0000:0000:ffff:0a09:0001\n",
		ib + "ports/1/gids/2":                      "0000:0000:0000:0000:0000:0000:0000:0000\n",
		ib + "ports/1/gid_attrs/types/0":           "IB/RoCE v1\n",
		ib + "ports/1/gid_attrs/types/1":           "RoCE v2\n",
		ib + "ports/1/gid_attrs/ndevs/0":           "eth0\n",
		ib + "ports/1/gid_attrs/ndevs/1":           "eth0\n",
		"proc/thread-self/net/dev":                 "Inter-| Receive\n face |bytes\n    lo: 0 0\n  eth0: 1 2\n",
		"proc/thread-self/net/if_inet6":            "fe80000000000000505400fffe123456 02 40 20 80     eth0\n",
		"sys/class/misc/rdma_cm/dev":               "10:126\n",
		"sys/class/misc/rdma_cm/abi_version":       "4\n",
		"sys/module/ib_core/parameters/netns_mode": "Y\n",
	}
}

// with returns the files with some changed; "" takes one away.
func with(files map[string]string, changes map[string]string) map[string]string {
	files = maps.Clone(files)
	for name, content := range changes {
		if content == "" {
			delete(files, name)
		} else {
			files[name] = content
		}
	}
	return files
}

func TestSysfsFallback(t *testing.T) {
	files := sysfsFiles("rxe0", "uverbs0", "231:192")
	want := []Device{{
		Index: -1, Name: "rxe0", NodeGUID: 0x505400fffe123456, Ports: 1, NodeType: abi.RDMA_NODE_IB_CA,
		Firmware: "1.2.3", Protocol: "roce", Driver: abi.RDMA_DRIVER_RXE, NetDevs: []string{"eth0"},
		CharDev: CharDev{SysName: "uverbs0", Node: "/dev/infiniband/uverbs0", Dev: MakeDev(231, 192), ABI: 2},
	}}
	for _, errno := range []syscall.Errno{
		syscall.EPROTONOSUPPORT, syscall.EAFNOSUPPORT, syscall.EPERM, syscall.EACCES, syscall.ENOSYS, syscall.EOPNOTSUPP,
	} {
		for name, s := range map[string]*System{
			"socket": refusing(t, errno, present(1), files),
			"dump":   (&fakeNL{t: t, fail: map[uint16]error{abi.RDMA_NLDEV_CMD_GET: errno}}).system(present(1), files),
		} {
			got, err := s.Devices()
			if err != nil {
				t.Errorf("%s refused with %v: %v", name, errno, err)
			} else if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s refused with %v: (-want +got)\n%s", name, errno, diff)
			}
		}
	}
}

func TestSysfsOrderAndStrangers(t *testing.T) {
	files := sysfsFiles("rxe0", "uverbs10", "231:202")
	maps.Copy(files, sysfsFiles("siw0", "uverbs9", "231:201"))
	maps.Copy(files, map[string]string{
		"sys/class/infiniband/siw0/node_type":           "4: RNIC\n",
		"sys/class/infiniband/siw0/node_desc":           "Software iWARP stack\n",
		"sys/class/infiniband_verbs/uverbs/":            "",
		"sys/class/infiniband_verbs/uverbs07/":          "",
		"sys/class/infiniband_verbs/uverbs-1/":          "",
		"sys/class/infiniband_verbs/something_else/dev": "1:1\n",
	})
	devs, err := refusing(t, syscall.EPERM, nil, files).Devices()
	if err != nil || len(devs) != 2 {
		t.Fatalf("got %+v, %v, want 2 devices", devs, err)
	}
	if devs[0].Name != "siw0" || devs[0].Driver != abi.RDMA_DRIVER_SIW || devs[0].Protocol != "iw" || devs[1].Name != "rxe0" {
		t.Errorf("got %+v, want siw0 and rxe0 in the order of their nodes", devs)
	}
}

// TestSysfsFaults: what is cut short or makes no sense is the reason of that
// device and no number is made of it; the other device stays usable.
func TestSysfsFaults(t *testing.T) {
	base := sysfsFiles("rxe0", "uverbs0", "231:192")
	maps.Copy(base, sysfsFiles("rxe1", "uverbs1", "231:193"))
	verbs, ib := "sys/class/infiniband_verbs/uverbs0/", "sys/class/infiniband/rxe0/"
	for name, content := range map[string]string{
		verbs + "dev":              "231:19",
		verbs + "abi_version":      "2",
		verbs + "ibdev":            "../rxe0\n",
		ib + "node_guid":           "5054:00ff:fe12:345\n",
		ib + "node_type":           "CA\n",
		ib + "ports/1/link_layer":  "Ethernet",
		verbs + "dev\x00":          "",
		ib + "node_guid\x00":       "",
		verbs + "abi_version\x00":  "",
		ib + "node_type\x00":       "",
		ib + "ports/1/link_layer/": "",
	} {
		changes := map[string]string{name: content}
		switch {
		case strings.HasSuffix(name, "\x00"): // take it away
			changes = map[string]string{strings.TrimSuffix(name, "\x00"): ""}
		case strings.HasSuffix(name, "/"): // a directory in its place
			changes = map[string]string{strings.TrimSuffix(name, "/"): "", name + "x": "\n"}
		}
		devs, err := refusing(t, syscall.EPERM, present(2), with(base, changes)).Devices()
		if err != nil || len(devs) != 2 {
			t.Errorf("%q is %q: got %+v, %v, want 2 devices", name, content, devs, err)
			continue
		}
		if devs[0].Reason == nil || devs[1].Reason != nil {
			t.Errorf("%q is %q: got reasons %v and %v, want one for the first only", name, content, devs[0].Reason, devs[1].Reason)
		}
	}
}

func TestSysfsWholeListFaults(t *testing.T) {
	base := sysfsFiles("rxe0", "uverbs0", "231:192")
	for content, want := range map[string]string{"7\n": "ABI version 7, want 6", "6": "not one whole line", "x\n": "invalid syntax"} {
		s := refusing(t, syscall.EPERM, present(1), with(base, map[string]string{"sys/class/infiniband_verbs/abi_version": content}))
		if _, err := s.Devices(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("abi_version %q: got error %v, want %q", content, err, want)
		}
	}
}

// TestRW22SysfsRename has a name that leads nowhere, as between two reads of a
// rename: the device is still shown once.
func TestRW22SysfsRename(t *testing.T) {
	files := with(sysfsFiles("rxe0", "uverbs0", "231:192"), map[string]string{
		"sys/class/infiniband_verbs/uverbs0/ibdev": "renamed\n",
	})
	devs, err := refusing(t, syscall.EPERM, present(1), files).Devices()
	if err != nil || len(devs) != 1 || devs[0].Reason == nil {
		t.Errorf("got %+v, %v, want one device with a reason", devs, err)
	}
}

func TestRW20SysfsWithoutUverbs(t *testing.T) {
	files := map[string]string{}
	for name, content := range sysfsFiles("rxe0", "uverbs0", "231:192") {
		if !strings.Contains(name, "infiniband_verbs") {
			files[name] = content
		}
	}
	devs, err := refusing(t, syscall.EPERM, present(1), files).Devices()
	if err != nil || len(devs) != 1 || devs[0].Name != "rxe0" || devs[0].Driver != abi.RDMA_DRIVER_RXE {
		t.Fatalf("got %+v, %v, want rxe0", devs, err)
	}
	mustError(t, devs[0].Reason, ErrNoModule, "ib_uverbs is not loaded")
}

func TestRW20SysfsEmpty(t *testing.T) {
	for _, files := range []map[string]string{
		{"sys/class/infiniband_verbs/abi_version": "6\n"},
		{"sys/class/infiniband/": ""},
	} {
		devs, err := refusing(t, syscall.EPERM, nil, files).Devices()
		if err != nil || devs == nil || len(devs) != 0 {
			t.Errorf("%v: got %v, %v, want an empty list", files, devs, err)
		}
	}
}

func TestSysfsDriver(t *testing.T) {
	files := map[string]string{
		"sys/class/infiniband/a/node_desc":      "rxe\n",
		"sys/class/infiniband/b/node_desc":      "Software iWARP stack\n",
		"sys/class/infiniband/rxe7/node_desc":   "host7\n",
		"sys/class/infiniband/siw7/node_desc":   "host7\n",
		"sys/class/infiniband/other/node_desc":  "host7\n",
		"sys/class/infiniband/mlx5_0/node_desc": "host7\n",
	}
	want := map[string]uint32{
		"a": abi.RDMA_DRIVER_RXE, "b": abi.RDMA_DRIVER_SIW, "rxe7": abi.RDMA_DRIVER_RXE, "siw7": abi.RDMA_DRIVER_SIW,
		"other": abi.RDMA_DRIVER_UNKNOWN, "absent": abi.RDMA_DRIVER_UNKNOWN,
	}
	s := &System{Root: tree(t, files)}
	for driver, id := range map[string]uint32{
		"mlx5_core": abi.RDMA_DRIVER_MLX5, "mlx4_core": abi.RDMA_DRIVER_MLX4, "ib_mthca": abi.RDMA_DRIVER_MTHCA,
		"cxgb4": abi.RDMA_DRIVER_CXGB4, "bnxt_en": abi.RDMA_DRIVER_BNXT_RE, "ice": abi.RDMA_DRIVER_IRDMA,
		"vmw_pvrdma": abi.RDMA_DRIVER_VMW_PVRDMA, "qede": abi.RDMA_DRIVER_QEDR, "hns3": abi.RDMA_DRIVER_HNS,
		"efa": abi.RDMA_DRIVER_EFA, "erdma": abi.RDMA_DRIVER_ERDMA, "mana": abi.RDMA_DRIVER_MANA,
		"ionic": abi.RDMA_DRIVER_IONIC, "e1000": abi.RDMA_DRIVER_UNKNOWN,
	} {
		if runtime.GOOS == "windows" {
			break // symbolic links need a privilege there
		}
		dir := filepath.Join(s.Root, "sys/class/infiniband/on_"+driver+"/device")
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../../../bus/pci/drivers/"+driver, filepath.Join(dir, "driver")); err != nil {
			t.Fatal(err)
		}
		want["on_"+driver] = id
	}
	for name, id := range want {
		if got := s.sysfsDriver(name); got != id {
			t.Errorf("%s: got %s, want %s", name, DriverName(got), DriverName(id))
		}
	}
}

func TestProtocol(t *testing.T) {
	for _, tt := range []struct {
		nodeType  uint8
		linkLayer string
		want      string
	}{
		{abi.RDMA_NODE_IB_CA, "Ethernet", "roce"},
		{abi.RDMA_NODE_IB_CA, "InfiniBand", "ib"},
		{abi.RDMA_NODE_RNIC, "Ethernet", "iw"},
		{abi.RDMA_NODE_USNIC_UDP, "Ethernet", "usnic"},
		{abi.RDMA_NODE_UNSPECIFIED, "Unknown", ""},
	} {
		if got := protocol(tt.nodeType, tt.linkLayer); got != tt.want {
			t.Errorf("node type %d on %s: got %q, want %q", tt.nodeType, tt.linkLayer, got, tt.want)
		}
	}
}

func TestDriverName(t *testing.T) {
	for id, want := range map[uint32]string{
		abi.RDMA_DRIVER_UNKNOWN: "unknown", abi.RDMA_DRIVER_RXE: "rxe", abi.RDMA_DRIVER_BNXT_RE: "bnxt_re",
		abi.RDMA_DRIVER_IRDMA: "irdma", 99: "driver 99",
	} {
		if got := DriverName(id); got != want {
			t.Errorf("DriverName(%d): got %q, want %q", id, got, want)
		}
	}
}

func TestPortTables(t *testing.T) {
	s := refusing(t, syscall.EPERM, nil, sysfsFiles("rxe0", "uverbs0", "231:192"))
	d := &Device{Name: "rxe0"}
	if n, err := s.PKeyCount(d, 1); n != 1 || err != nil {
		t.Errorf("PKeyCount: got %d, %v, want 1", n, err)
	}
	if k, err := s.PKey(d, 1, 0); k != 0xffff || err != nil {
		t.Errorf("PKey: got %#x, %v, want 0xffff", k, err)
	}
	if n, err := s.GIDCount(d, 1); n != 3 || err != nil {
		t.Errorf("GIDCount: got %d, %v, want 3", n, err)
	}
	want := []GID{
		{Raw: [16]byte{0: 0xfe, 1: 0x80, 8: 0x50, 9: 0x54, 11: 0xff, 12: 0xfe, 13: 0x12, 14: 0x34, 15: 0x56}, Type: abi.IB_UVERBS_GID_TYPE_ROCE_V1, NetDev: "eth0"},
		{Raw: [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: 9, 15: 1}, Type: abi.IB_UVERBS_GID_TYPE_ROCE_V2, NetDev: "eth0"},
		{},
	}
	for i := range want {
		got, ok, err := s.GID(d, 1, i)
		if err != nil || ok != (i < 2) || got != want[i] {
			t.Errorf("GID %d: got %+v, %v, %v, want %+v", i, got, ok, err, want[i])
		}
	}
}

// TestRW22TablesFollowTheName: the device was renamed since it was listed.
func TestRW22TablesFollowTheName(t *testing.T) {
	s := refusing(t, syscall.EPERM, nil, sysfsFiles("ibp0s4f1", "uverbs0", "231:192"))
	d := &Device{Name: "rxe0", CharDev: CharDev{SysName: "uverbs0"}}
	if k, err := s.PKey(d, 1, 0); k != 0xffff || err != nil {
		t.Errorf("PKey: got %#x, %v, want 0xffff", k, err)
	}
	if gid, ok, err := s.GID(d, 1, 1); !ok || err != nil || gid.NetDev != "eth0" {
		t.Errorf("GID: got %+v, %v, %v", gid, ok, err)
	}
}

func TestPortTableFaults(t *testing.T) {
	port := "sys/class/infiniband/rxe0/ports/1/"
	d := &Device{Name: "rxe0"}
	base := sysfsFiles("rxe0", "uverbs0", "231:192")
	read := func(changes map[string]string, index int) (GID, error) {
		gid, _, err := refusing(t, syscall.EPERM, nil, with(base, changes)).GID(d, 1, index)
		return gid, err
	}
	if _, err := read(nil, 3); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "read GID 3 of device rxe0 port 1") {
		t.Errorf("index past the table: got error %v", err)
	}
	for name, content := range map[string]string{
		"gids/0":            "fe80:0000:0000:0000:5054:00ff:fe12\n",
		"gids/0 ":           "fe80:0000:0000:0000:5054:00ff:fe12:345g\n",
		"gid_attrs/types/0": "RoCE v3\n",
		"gid_attrs/ndevs/0": "eth",
		"link_layer":        "Eth",
	} {
		if gid, err := read(map[string]string{port + strings.TrimSpace(name): content}, 0); err == nil {
			t.Errorf("%s is %q: got %+v, want an error", name, content, gid)
		}
	}
	gid, err := read(map[string]string{port + "link_layer": "InfiniBand\n", port + "gid_attrs/ndevs/0": ""}, 0)
	if err != nil || gid.Type != abi.IB_UVERBS_GID_TYPE_IB || gid.NetDev != "" {
		t.Errorf("InfiniBand: got %+v, %v", gid, err)
	}
	gid, err = read(map[string]string{port + "gid_attrs/types/0": ""}, 0)
	if err != nil || gid.Type != abi.IB_UVERBS_GID_TYPE_IB {
		t.Errorf("port without types: got %+v, %v", gid, err)
	}
	s := refusing(t, syscall.EPERM, nil, with(base, map[string]string{port + "pkeys/0": "0x1ffff\n"}))
	if k, err := s.PKey(d, 1, 0); err == nil {
		t.Errorf("key of 17 bits: got %#x, want an error", k)
	}
}

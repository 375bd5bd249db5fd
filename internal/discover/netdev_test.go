package discover

import (
	"fmt"
	"maps"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
)

// TestRW01NoInterfaceHere: a device of another namespace is usable as far as its
// node goes, and flagged.
func TestRW01NoInterfaceHere(t *testing.T) {
	k := &fakeNL{t: t, devs: []fakeDev{rxe(0, "rxe0", ""), rxe(1, "rxe1", "eth1")}}
	devs, err := k.system(present(2), nil).Devices()
	if err != nil || len(devs) != 2 {
		t.Fatalf("got %+v, %v, want 2 devices", devs, err)
	}
	if devs[0].Reason != nil || len(devs[0].NetDevs) != 0 {
		t.Errorf("rxe0: got %v, %v, want a usable device without interfaces", devs[0].Reason, devs[0].NetDevs)
	}
	mustError(t, devs[0].NetReason, ErrNoInterface, "rxe0", "no interface of this device in this network namespace", "ip link set")
	if devs[1].NetReason != nil {
		t.Errorf("rxe1: got %v, want nil", devs[1].NetReason)
	}
}

func TestRW01InfiniBandNeedsNoInterface(t *testing.T) {
	d := rxe(0, "mlx5_0", "")
	d.protocol = "ib"
	devs, err := (&fakeNL{t: t, devs: []fakeDev{d}}).system(present(1), nil).Devices()
	if err != nil || len(devs) != 1 || devs[0].NetReason != nil {
		t.Errorf("got %+v, %v, want one device that is not flagged", devs, err)
	}
}

// TestRW01GIDTable: the port's interface is elsewhere, but its GID table names
// interfaces that may be here: stacked ones are, a namesake is not.
func TestRW01GIDTable(t *testing.T) {
	ib := "sys/class/infiniband/rxe0/ports/1/"
	tests := []struct {
		name    string
		changes map[string]string
		want    []string
	}{
		{"macvlan of this namespace", map[string]string{ib + "gid_attrs/ndevs/1": "net1\n", ib + "gid_attrs/ndevs/0": "net1\n",
			"proc/thread-self/net/dev":      "net1: 0\n",
			"proc/thread-self/net/if_inet6": "fe80000000000000505400fffe123456 03 40 20 80 net1\n"}, []string{"net1"}},
		{"namesake with another address", map[string]string{
			"proc/thread-self/net/if_inet6": "fe800000000000000000000000000099 03 40 20 80 eth0\n"}, nil},
		{"no IPv6 here", map[string]string{"proc/thread-self/net/if_inet6": ""}, []string{"eth0"}},
		{"no such interface", map[string]string{"proc/thread-self/net/dev": "lo: 0\n", "proc/thread-self/net/if_inet6": ""}, nil},
		{"no /proc", map[string]string{"proc/thread-self/net/dev": "", "proc/thread-self/net/if_inet6": "",
			"sys/class/net/eth0/x": "\n"}, []string{"eth0"}},
		{"nonsense in /proc", map[string]string{
			"proc/thread-self/net/if_inet6": "fe80 1\nzz80000000000000505400fffe123456 02 40 20 80 eth0\nfe80 02 40 20 80 eth0\n"}, []string{"eth0"}},
	}
	base := sysfsFiles("rxe0", "uverbs0", "231:192")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := &fakeNL{t: t, devs: []fakeDev{rxe(0, "rxe0", "")}}
			for source, s := range map[string]*System{
				"netlink": k.system(present(1), with(base, tt.changes)),
				"sysfs":   refusing(t, syscall.EPERM, present(1), with(base, tt.changes)),
			} {
				devs, err := s.Devices()
				if err != nil || len(devs) != 1 {
					t.Fatalf("%s: got %+v, %v", source, devs, err)
				}
				if diff := cmp.Diff(tt.want, devs[0].NetDevs); diff != "" {
					t.Errorf("%s: interfaces (-want +got)\n%s", source, diff)
				}
				if (devs[0].NetReason == nil) != (len(tt.want) > 0) {
					t.Errorf("%s: got reason %v", source, devs[0].NetReason)
				}
			}
		})
	}
}

// TestGIDTableGap: the search of a table goes over a gap, and does not go through a thousand
// unused entries.
func TestGIDTableGap(t *testing.T) {
	const dir = "sys/class/infiniband/rxe0/ports/1/"
	const gid = "fe80:0000:0000:0000:5054:00ff:fe12:3456\n"
	for _, tt := range []struct {
		index int
		want  []string
	}{{maxGap + 1, []string{"net1"}}, {maxGap + 2, nil}} {
		changes := map[string]string{"proc/thread-self/net/dev": "net1: 0\n", "proc/thread-self/net/if_inet6": "",
			dir + "gid_attrs/ndevs/0": "elsewhere\n", dir + "gid_attrs/ndevs/1": "elsewhere\n"}
		for i := 2; i <= tt.index; i++ {
			changes[fmt.Sprint(dir, "gids/", i)] = "0000:0000:0000:0000:0000:0000:0000:0000\n"
		}
		changes[fmt.Sprint(dir, "gids/", tt.index)] = gid
		changes[fmt.Sprint(dir, "gid_attrs/ndevs/", tt.index)] = "net1\n"
		k := &fakeNL{t: t, devs: []fakeDev{rxe(0, "rxe0", "")}}
		devs, err := k.system(present(1), with(sysfsFiles("rxe0", "uverbs0", "231:192"), changes)).Devices()
		if err != nil || len(devs) != 1 {
			t.Fatalf("got %+v, %v", devs, err)
		}
		if diff := cmp.Diff(tt.want, devs[0].NetDevs); diff != "" {
			t.Errorf("entry %d (-want +got)\n%s", tt.index, diff)
		}
	}
}

func TestSeveralPorts(t *testing.T) {
	d := rxe(0, "mlx5_0", "eth2")
	d.ports = []string{"eth2", "", "eth1", "eth2"}
	k := &fakeNL{t: t, devs: []fakeDev{d}}
	devs, err := k.system(present(1), nil).Devices()
	if err != nil || len(devs) != 1 {
		t.Fatalf("got %+v, %v", devs, err)
	}
	if diff := cmp.Diff([]string{"eth1", "eth2"}, devs[0].NetDevs); diff != "" {
		t.Errorf("interfaces (-want +got)\n%s", diff)
	}
}

// TestPortsUnknown: a kernel that does not answer PORT_GET leaves the GID table.
func TestPortsUnknown(t *testing.T) {
	k := &fakeNL{t: t, devs: []fakeDev{rxe(0, "rxe0", "eth0")}, fail: map[uint16]error{abi.RDMA_NLDEV_CMD_PORT_GET: syscall.EINVAL}}
	devs, err := k.system(present(1), maps.Clone(sysfsFiles("rxe0", "uverbs0", "231:192"))).Devices()
	if err != nil || len(devs) != 1 || len(devs[0].NetDevs) != 1 || devs[0].NetReason != nil {
		t.Errorf("got %+v, %v, want the interface of the GID table", devs, err)
	}
}

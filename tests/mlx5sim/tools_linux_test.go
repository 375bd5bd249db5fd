//go:build amd64 || arm64

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
)

// stack is an installation of rdma-core.
type stack struct{ name, prefix string }

// stacks are this machine's rdma-core and, if it has been fetched, the newest one.
func stacks(t *testing.T) []stack {
	testutil.Command(t, "ibv_devinfo")
	list := []stack{{name: "installed"}}
	cache, err := os.UserCacheDir()
	if err == nil {
		run := filepath.Join(cache, "pureverbs/rdma-core/newest/run")
		if _, err = os.Stat(run); err == nil {
			return append(list, stack{"newest", run + " "})
		}
	}
	t.Log("without the newest rdma-core: hack/rdma-core-newest.sh fetches it")
	return list
}

// TestDeviceInfo: libibverbs sees the device as it would see hardware.
func TestDeviceInfo(t *testing.T) {
	for _, s := range stacks(t) {
		t.Run(s.name, func(t *testing.T) {
			o := simulate(t, nil, strings.Fields(s.prefix+"ibv_devinfo -v")...)
			o.good(t)
			text := strings.Join(strings.Fields(o.out), " ")
			for _, want := range []string{
				"hca_id: mlx5_0", "fw_ver: 16.35.4030", "vendor_part_id: 4119", "board_id: MT_0000000000", "link_layer: Ethernet",
				"state: PORT_ACTIVE (4)", "GID[ 0]: fe80:0000:0000:0000:0000:0000:000a:0001, RoCE v1", "GID[ 1]: fe80::a:1, RoCE v2", "GID[ 3]: ::ffff:127.0.0.1, RoCE v2",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, o.out)
				}
			}
		})
	}
}

// game is a run of one of the C programs against itself.
type game struct {
	transport string
	flags     string // of both ends
	sim       string // of mlx5sim
}

func (g game) String() string {
	return strings.Join(strings.Fields(g.transport+" "+g.flags+" "+g.sim), " ")
}

// games are all programs, sleeping and polling, and what the device may lack.
func games() (list []game) {
	for _, transport := range []string{"rc", "uc", "ud", "srq"} {
		list = append(list,
			game{transport, "-n 300 -e", ""}, game{transport, "-n 100", ""}, game{transport, "-n 100 -s 1 -e", ""},
			game{transport, "-n 100 -e -c -s 1000", ""},
			game{transport, "-n 100 -e", "-static-uars"}, game{transport, "-n 100 -e", "-cqe0"},
			game{transport, "-n 100 -e", "-no-blueflame"}, game{transport, "-n 100 -e", "-page-size 65536"},
			game{transport, "-n 100 -e", "-kernel 5.10"}, game{transport, "-n 100 -e", "-kernel 7.2"})
	}
	return append(list,
		game{"rc", "-n 50 -e -s 100000 -m 4096", ""}, game{"uc", "-n 50 -e -s 65536", ""},
		game{"srq", "-n 200 -e -q 40", ""}, game{"rc", "-n 100 -e -r 1", ""})
}

// TestPingpong: two processes of the C stack play against each other.
func TestPingpong(t *testing.T) {
	for _, s := range stacks(t) {
		for i, g := range games() {
			if testing.Short() && s.prefix != "" && g.sim != "" {
				continue // the installed one does
			}
			t.Run(s.name+" "+g.String(), func(t *testing.T) { g.play(t, s, 18700+i) })
		}
	}
}

func (g game) play(t *testing.T, s stack, port int) {
	end := s.prefix + "ibv_" + g.transport + "_pingpong -g 1 " + g.flags
	o := simulate(t, strings.Fields(g.sim), "sh", "-c", pair(end, port))
	o.good(t)
	if n := strings.Count(o.out, " usec/iter"); n != 2 {
		t.Errorf("%d ends finished:\n%s", n, o.out)
	}
}

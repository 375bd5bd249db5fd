package main

import (
	"context"
	"io"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
)

// TestInteropPingpong plays against the C program, each in either role, sleeping and
// polling.
func TestInteropPingpong(t *testing.T) {
	dev := testutil.Device(t).Name()
	c := testutil.Command(t, "ibv_rc_pingpong")
	for i, tt := range []struct {
		name     string
		cServes  bool
		cArgs    []string
		goEvents bool
	}{
		{"C client, events", false, []string{"-e"}, true},
		{"C client, polling", false, nil, false},
		{"C server, events", true, []string{"-e"}, true},
		{"C server, polling", true, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testutil.NoLeaks(t)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			o := options{device: dev, port: 18600 + i, gidIndex: 1, size: 4096, iters: 200, depth: 50, events: tt.goEvents}
			args := append([]string{"-d", dev, "-g", "1", "-n", "200", "-r", "50", "-p", strconv.Itoa(o.port)}, tt.cArgs...)
			if tt.cServes {
				o.server = "127.0.0.1"
			} else {
				args = append(args, "127.0.0.1")
			}
			peer := make(chan error, 1)
			go func() {
				out, err := playC(ctx, c, args, !tt.cServes)
				if err != nil {
					t.Logf("%s", out)
				}
				peer <- err
			}()
			if err := run(ctx, o, io.Discard); err != nil {
				t.Errorf("Go: %v", err)
			}
			if err := <-peer; err != nil {
				t.Errorf("C: %v", err)
			}
		})
	}
}

// playC runs the C program; as a client, until the server is up.
func playC(ctx context.Context, path string, args []string, client bool) (out []byte, err error) {
	for range 50 {
		out, err = exec.CommandContext(ctx, path, args...).CombinedOutput()
		if err == nil || !client || ctx.Err() != nil {
			return out, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return out, err
}

func TestAddress(t *testing.T) {
	want := address{qpn: 0x11, psn: 0xabcdef, gid: [16]byte{0xfe, 0x80, 15: 1}}
	b := want.encode()
	if string(b) != "0000:000011:abcdef:fe800000000000000000000000000001\x00" {
		t.Errorf("encoded as %q", b)
	}
	if got, err := parseAddress(b); err != nil || got != want {
		t.Errorf("parsed as %+v, %v", got, err)
	}
	for _, bad := range []string{"", "0000:000011", "zzzz:zzzzzz:zzzzzz:fe800000000000000000000000000001\x00"} {
		if _, err := parseAddress([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

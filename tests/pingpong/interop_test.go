package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
)

// TestInteropPingpong plays against the C programs, in either role, sleeping and polling.
func TestInteropPingpong(t *testing.T) {
	for i, transport := range []string{"rc", "uc", "ud", "srq"} {
		for j, tt := range []struct {
			name    string
			cServes bool
			events  bool
		}{
			{"C client, events", false, true},
			{"C client, polling", false, false},
			{"C server, events", true, true},
			{"C server, polling", true, false},
		} {
			t.Run(transport+", "+tt.name, func(t *testing.T) {
				o := options{transport: transport, port: 18600 + 10*i + j, gidIndex: 1, iters: 200, depth: 50, events: tt.events}
				if tt.cServes {
					o.server = "127.0.0.1"
				}
				playC(t, o)
			})
		}
	}
}

// TestInteropPingpongSizes: empty messages, one byte, and more than a packet where that can
// be; one queue pair and many on the shared queue.
func TestInteropPingpongSizes(t *testing.T) {
	for i, o := range []options{
		{transport: "rc", size: 1},
		{transport: "rc", size: 100_000},
		{transport: "uc", size: 65536},
		{transport: "ud", size: 1},
		{transport: "srq", size: 8, pairs: 1},
		{transport: "srq", size: 2000, pairs: 40},
	} {
		t.Run(fmt.Sprintf("%s, %d bytes, %d queue pairs", o.transport, o.size, o.pairs), func(t *testing.T) {
			o.port, o.gidIndex, o.iters, o.depth, o.events, o.server = 18650+i, 1, 100, 50, true, "127.0.0.1"
			playC(t, o)
		})
	}
}

// device finds a device whose queue pairs can be connected by hand.
func device(t *testing.T) string {
	d := testutil.Device(t)
	if d.Protocol() == "iw" {
		t.Skip("iWARP connects queue pairs by the connection manager only")
	}
	return d.Name()
}

// playC plays one game against the C program in the other role.
func playC(t *testing.T, o options) {
	path := testutil.Command(t, "ibv_"+o.transport+"_pingpong")
	o.device = device(t)
	testutil.NoLeaks(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	peer := make(chan error, 1)
	go func() {
		out, err := runC(ctx, path, arguments(o), o.server == "")
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		peer <- err
	}()
	last, err := run(ctx, o, io.Discard)
	if err != nil {
		cancel()
		t.Errorf("Go: %v", err)
	}
	if err := <-peer; err != nil {
		t.Errorf("C: %v", err)
	}
	if want := firstMessage(o); err == nil && !bytes.Equal(last, bytes.Repeat([]byte{want}, len(last))) {
		t.Errorf("the last message is % x ..., want all %#x", last[:min(len(last), 8)], want)
	}
}

// arguments are those of the C program in the other role.
func arguments(o options) []string {
	args := strings.Fields(fmt.Sprintf("-d %s -g %d -n %d -r %d -p %d", o.device, o.gidIndex, o.iters, o.depth, o.port))
	if o.size != 0 {
		args = append(args, "-s", strconv.Itoa(o.size))
	}
	if o.pairs != 0 {
		args = append(args, "-q", strconv.Itoa(o.pairs))
	}
	if o.events {
		args = append(args, "-e")
	}
	if o.server == "" {
		args = append(args, "127.0.0.1")
	}
	return args
}

// firstMessage is the byte that the client's memory is full of: each message is the first
// one, sent back.
func firstMessage(o options) byte {
	switch {
	case o.server != "":
		return fill
	case o.transport == "srq":
		return 0
	}
	return 0x7b
}

// runC runs the C program; as a client, until the server is up.
func runC(ctx context.Context, path string, args []string, client bool) (out []byte, err error) {
	for range 50 {
		out, err = exec.CommandContext(ctx, path, args...).CombinedOutput()
		if err == nil || !client || ctx.Err() != nil || !bytes.Contains(out, []byte("Couldn't connect to 127")) {
			return out, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return out, err
}

// TestGoToGo plays against itself, in each transport.
func TestGoToGo(t *testing.T) {
	for i, transport := range []string{"rc", "uc", "ud", "srq"} {
		t.Run(transport, func(t *testing.T) {
			o := options{
				transport: transport, device: device(t), port: 18670 + i, gidIndex: 1, iters: 100, depth: 50, events: true,
			}
			testutil.NoLeaks(t)
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			server := make(chan error, 1)
			go func() {
				last, err := run(ctx, o, io.Discard)
				if err == nil && !bytes.Equal(last, bytes.Repeat([]byte{fill}, len(last))) {
					err = fmt.Errorf("the last message is not the client's: % x", last[:8])
				}
				server <- err
			}()
			client := o
			client.server = "127.0.0.1"
			if _, err := run(ctx, client, io.Discard); err != nil {
				t.Errorf("client: %v", err)
			}
			if err := <-server; err != nil {
				t.Errorf("server: %v", err)
			}
		})
	}
}

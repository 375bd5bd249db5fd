package tests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/tests/cmpeer"
)

// cmGame is a C program against its peer in Go.
type cmGame struct {
	program string
	args    []string
	ready   chan struct{} // the Go peer is the server, and closes it; nil if the C program is
	peer    func(context.Context) error
	endless bool // the C program is a server that never ends by itself
}

// cmPorts are where the games meet, a new one for each: a C server may linger on the last.
var cmPorts = func() func() int {
	port := 17400
	return func() int { port++; return port }
}()

func labAddr(host string, port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(host), uint16(port))
}

// serve makes the options of a Go server, and the way the test learns that it listens.
func (g *cmGame) serve(host string, port int) cmpeer.Options {
	g.ready = make(chan struct{})
	return cmpeer.Options{Addr: labAddr(host, port), Ready: g.ready}
}

// playCM plays a game to its good end. A game is played again only for the two reasons for
// which siw loses one, see their comments.
func playCM(t *testing.T, makeGame func(port int) *cmGame) {
	t.Helper()
	iw := testutil.Device(t).Protocol() == "iw"
	for try := 1; ; try++ {
		g := makeGame(cmPorts())
		errGo, errC := g.play(t)
		err := errors.Join(errGo, errC)
		if iw && try < 6 && (errors.Is(err, cmpeer.ErrUnheard) || errors.Is(err, cmpeer.ErrTooEarly)) {
			t.Logf("trying again: %v", err)
			continue
		}
		if errGo != nil {
			t.Errorf("Go: %v", errGo)
		}
		if errC != nil {
			t.Errorf("C: %v", errC)
		}
		return
	}
}

func (g *cmGame) play(t *testing.T) (errGo, errC error) {
	path := testutil.Command(t, g.program)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	here, there := make(chan error, 1), make(chan error, 1)
	c, stop := context.WithCancel(ctx)
	defer stop()
	go func() { here <- g.peer(ctx) }()
	go func() { there <- g.runC(c, path) }()
	for range 2 {
		var err error
		select {
		case errGo = <-here:
			if err = errGo; g.endless {
				stop()
			}
		case errC = <-there:
			err = errC
		}
		if err != nil { // let the other side notice, but not for ever
			defer time.AfterFunc(3*time.Second, cancel).Stop()
		}
	}
	return errGo, errC
}

func (g *cmGame) runC(ctx context.Context, path string) error {
	if g.ready != nil {
		select {
		case <-g.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	cmd := exec.CommandContext(ctx, path, g.args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil && !(g.endless && ctx.Err() != nil) {
		return fmt.Errorf("%s %s: %w\n%s", g.program, strings.Join(g.args, " "), err, out)
	}
	return nil
}

// listens waits until a C server, which does not say so, listens on a port of a certain
// address. One by one untilUp would do, but the first of many connections may come too early
// and the next in time, which the server counts.
func listens(ctx context.Context, rdma string, port int) error {
	here := regexp.MustCompile(fmt.Sprintf(`LISTEN .*:%d\b`, port))
	for {
		out, err := exec.CommandContext(ctx, rdma, "resource", "show", "cm_id").Output()
		if err != nil {
			return err
		}
		if here.Match(out) {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// untilUp calls a C server until it listens.
func untilUp(ctx context.Context, call func() error) error {
	for {
		err := call()
		if !errors.Is(err, syscall.ECONNREFUSED) || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestInteropUcmatose: one connection and many, of both families, also without messages, and
// with ids that migrate.
func TestInteropUcmatose(t *testing.T) {
	rdma := testutil.Command(t, "rdma")
	for _, tt := range []struct {
		host string
		f    cmpeer.Fleet
		more string // "-m": both sides move their ids to another event channel
	}{
		{labIPv4, cmpeer.Fleet{Connections: 1, Messages: 10, Size: 100}, ""},
		{labIPv6, cmpeer.Fleet{Connections: 1, Messages: 10, Size: 100}, "-m"},
		{labIPv4, cmpeer.Fleet{Connections: 30, Messages: 10, Size: 100}, ""},
		{labIPv4, cmpeer.Fleet{Connections: 3, Messages: 20, Size: 8000}, "-m"},
		{labIPv4, cmpeer.Fleet{Connections: 8}, ""},
	} {
		args := func(flag string, port int) []string {
			return strings.Fields(fmt.Sprintf("%s %s -p %d -c %d -C %d -S %d %s",
				flag, tt.host, port, tt.f.Connections, tt.f.Messages, tt.f.Size, tt.more))
		}
		name := fmt.Sprintf("%s, %d connections, %d of %d bytes", tt.host, tt.f.Connections, tt.f.Messages, tt.f.Size)
		t.Run(name+", C client", func(t *testing.T) {
			sameObjects(t)
			testutil.NoLeaks(t)
			playCM(t, func(port int) *cmGame {
				g := &cmGame{program: "ucmatose", args: args("-s", port)}
				m := &cmpeer.Matose{Options: g.serve(tt.host, port), Fleet: tt.f, Migrate: tt.more != ""}
				g.peer = m.Serve
				return g
			})
		})
		t.Run(name+", C server", func(t *testing.T) {
			sameObjects(t)
			testutil.NoLeaks(t)
			playCM(t, func(port int) *cmGame {
				m := &cmpeer.Matose{Options: cmpeer.Options{Addr: labAddr(tt.host, port)}, Fleet: tt.f, Migrate: tt.more != ""}
				return &cmGame{program: "ucmatose", args: args("-b", port), peer: func(ctx context.Context) error {
					if err := listens(ctx, rdma, port); err != nil {
						return err
					}
					messages, err := m.Call(ctx)
					return errors.Join(err, sameMessages(messages))
				}}
			})
		})
	}
}

// sameMessages: what the C server sends is not known, but all messages are from one memory.
func sameMessages(connections [][][]byte) error {
	for c, messages := range connections {
		for i, got := range messages {
			if !bytes.Equal(got, messages[0]) {
				return fmt.Errorf("connection %d: message %d is %x, the first was %x", c, i, got, messages[0])
			}
		}
	}
	return nil
}

// TestInteropMessage: rdma_server and rdma_client, rdma_xserver and rdma_xclient. The C
// programs send 16 zeros.
func TestInteropMessage(t *testing.T) {
	zeros, text := make([]byte, 16), [16]byte{'f', 'r', 'o', 'm', ' ', 'G', 'o', 15: 1}
	compare := func(got []byte) error {
		if !bytes.Equal(got, zeros) {
			return fmt.Errorf("got %x, want zeros", got)
		}
		return nil
	}
	for _, tt := range []struct {
		client, server string
		oneWay         bool
		host           []string // the server's address, where it can be told
	}{
		{"rdma_client", "rdma_server", false, []string{"-s", labIPv4}},
		{"rdma_client", "rdma_server", false, []string{"-s", labIPv6}},
		{"rdma_xclient", "rdma_xserver", true, []string{"-c", "r"}},
	} {
		host := labIPv4
		if !tt.oneWay {
			host = tt.host[1]
		}
		t.Run(tt.client+" "+host, func(t *testing.T) {
			sameObjects(t)
			testutil.NoLeaks(t)
			playCM(t, func(port int) *cmGame {
				g := &cmGame{program: tt.client, args: []string{"-s", host, "-p", strconv.Itoa(port)}}
				m := cmpeer.Message{Options: g.serve(host, port), OneWay: tt.oneWay, Text: text}
				g.peer = func(ctx context.Context) error {
					got, err := m.Serve(ctx)
					if err != nil {
						return err
					}
					return compare(got)
				}
				return g
			})
		})
		t.Run(tt.server+" "+host, func(t *testing.T) {
			sameObjects(t)
			testutil.NoLeaks(t)
			playCM(t, func(port int) *cmGame {
				m := cmpeer.Message{Options: cmpeer.Options{Addr: labAddr(host, port)}, OneWay: tt.oneWay, Text: text}
				g := &cmGame{program: tt.server, args: append([]string{"-p", strconv.Itoa(port)}, tt.host...)}
				g.peer = func(ctx context.Context) error {
					return untilUp(ctx, func() error {
						got, err := m.Call(ctx)
						if err != nil || tt.oneWay {
							return err
						}
						return compare(got)
					})
				}
				return g
			})
		})
	}
}

// TestInteropCmtime: connections are made and ended, a hundred on one channel.
func TestInteropCmtime(t *testing.T) {
	connections := 100
	// On siw the C program (rdma-core 44) cannot make more than 71 queue pairs, whoever the peer is.
	if testing.Short() || testutil.Device(t).Protocol() == "iw" {
		connections = 30
	}
	rdma := testutil.Command(t, "rdma")
	t.Run("C client", func(t *testing.T) {
		sameObjects(t)
		testutil.NoLeaks(t)
		playCM(t, func(port int) *cmGame {
			g := &cmGame{program: "cmtime", args: strings.Fields(fmt.Sprintf("-s %s -p %d -c %d", labIPv4, port, connections))}
			m := cmpeer.Time{Options: g.serve(labIPv4, port), Connections: connections}
			g.peer = m.Serve
			return g
		})
	})
	t.Run("C server", func(t *testing.T) {
		sameObjects(t)
		testutil.NoLeaks(t)
		playCM(t, func(port int) *cmGame {
			m := cmpeer.Time{Options: cmpeer.Options{Addr: labAddr(labIPv4, port)}, Connections: connections}
			g := &cmGame{program: "cmtime", args: strings.Fields(fmt.Sprintf("-b %s -p %d", labIPv4, port)), endless: true}
			g.peer = func(ctx context.Context) error {
				if err := listens(ctx, rdma, port); err != nil {
					return err
				}
				steps, err := m.Call(ctx)
				for _, s := range steps {
					t.Logf("%-13s %8.2f ms", s.Name, s.Took.Seconds()*1e3)
				}
				return err
			}
			return g
		})
	})
}

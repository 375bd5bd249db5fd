package tests

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/tests/cmpeer"
	"github.com/pureverbs/rdma/uverbs"
)

// datagrams tells whether the device has them. iWARP has none, which is not a reason to pass
// over it: it has to say so.
func datagrams(t *testing.T, try func(context.Context) error) bool {
	t.Helper()
	if testutil.Device(t).Protocol() != "iw" {
		return true
	}
	if err := try(limit(t, 20*time.Second)); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("got %v, want ErrNotSupported", err)
	}
	return false
}

// TestInteropUdaddy: one pair of queue pairs and many, of both families.
func TestInteropUdaddy(t *testing.T) {
	sameObjects(t)
	testutil.NoLeaks(t)
	if !datagrams(t, func(ctx context.Context) error {
		_, err := rdmacm.ResolveDatagram(ctx, labAddr(labIPv4, cmpeer.AddyPort).String(), nil)
		return err
	}) {
		return
	}
	rdma := testutil.Command(t, "rdma")
	for _, tt := range []struct {
		host string
		f    cmpeer.Fleet
	}{
		{labIPv4, cmpeer.Fleet{Connections: 1, Messages: 10, Size: 100}},
		{labIPv6, cmpeer.Fleet{Connections: 1, Messages: 10, Size: 100}},
		{labIPv4, cmpeer.Fleet{Connections: 20, Messages: 10, Size: 1000}},
		{labIPv4, cmpeer.Fleet{Connections: 4}},
	} {
		args := func(flag string) []string {
			return strings.Fields(fmt.Sprintf("%s %s -c %d -C %d -S %d", flag, tt.host, tt.f.Connections, tt.f.Messages, tt.f.Size))
		}
		name := fmt.Sprintf("%s, %d pairs, %d of %d bytes", tt.host, tt.f.Connections, tt.f.Messages, tt.f.Size)
		t.Run(name+", C client", func(t *testing.T) {
			sameObjects(t)
			playCM(t, func(int) *cmGame {
				g := &cmGame{program: "udaddy", args: args("-s")}
				a := &cmpeer.Addy{Options: g.serve(tt.host, cmpeer.AddyPort), Fleet: tt.f}
				g.peer = a.Serve
				return g
			})
		})
		t.Run(name+", C server", func(t *testing.T) {
			sameObjects(t)
			playCM(t, func(int) *cmGame {
				a := &cmpeer.Addy{Options: cmpeer.Options{Addr: labAddr(tt.host, cmpeer.AddyPort)}, Fleet: tt.f}
				return &cmGame{program: "udaddy", args: args("-b"), peer: func(ctx context.Context) error {
					if err := listens(ctx, rdma, cmpeer.AddyPort); err != nil {
						return err
					}
					sent, got, err := a.Call(ctx)
					return errors.Join(err, shifted(sent, got))
				}}
			})
		})
	}
}

// shifted: what comes back from a C server is the memory that it received the last message
// into, from its beginning, where the header is.
func shifted(sent, got [][][]byte) error {
	for c := range got {
		last := sent[c][len(sent[c])-1]
		for i, b := range got[c] {
			if want := last[:len(last)-uverbs.GRHSize]; !bytes.Equal(b[uverbs.GRHSize:], want) {
				return fmt.Errorf("pair %d: message %d is %x, want %x behind a header", c, i, b, want)
			}
		}
	}
	return nil
}

// TestInteropMckey: multicast from one device to another over the wire, and within a device.
func TestInteropMckey(t *testing.T) {
	sameObjects(t)
	testutil.NoLeaks(t)
	group := netip.MustParseAddr("239.1.2.3")
	if !datagrams(t, func(ctx context.Context) error {
		_, err := rdmacm.JoinMulticast(ctx, group.String(), &rdmacm.Options{Source: labAddr(labIPv4, 0)})
		return err
	}) {
		return
	}
	for _, tt := range []struct {
		name, receiver, sender string
		sendOnly               bool
	}{
		{"over the wire", "10.5.0.1", "10.5.0.2", false},
		{"over the wire, send only", "10.5.0.1", "10.5.0.2", true},
		{"within a device", labIPv4, labIPv4, false},
	} {
		group = group.Next()
		key := cmpeer.Key{Group: group, Messages: 10, Size: 100, SendOnly: tt.sendOnly}
		args := func(bind string, more ...string) []string {
			return append([]string{"-m", key.Group.String(), "-b", bind, "-C", "10", "-S", "100"}, more...)
		}
		// The C sender posts its messages and leaves. From Linux 6.4 on rxe sends them later, which
		// is too late: they are lost, for a C receiver as well.
		if !testutil.RunningKernel().AtLeast(testutil.Kernel{Major: 6, Minor: 4}) {
			t.Run(tt.name+", C sender", func(t *testing.T) {
				sameObjects(t)
				playCM(t, func(int) *cmGame { return mckeySender(key, tt.receiver, args(tt.sender, "-s")) })
			})
		}
		t.Run(tt.name+", Go both", func(t *testing.T) {
			sameObjects(t)
			mckeyGo(t, key, tt.receiver, tt.sender)
		})
		t.Run(tt.name+", C receiver", func(t *testing.T) {
			sameObjects(t)
			playCM(t, func(int) *cmGame {
				k := key
				k.Source = netip.MustParseAddr(tt.sender)
				return &cmGame{program: "mckey", args: args(tt.receiver), peer: func(ctx context.Context) error {
					if err := joined(ctx, k.Group); err != nil {
						return err
					}
					return k.Send(ctx)
				}}
			})
		})
	}
}

// mckeySender lets C send. What it sends is not known, but all messages are from one memory.
func mckeySender(k cmpeer.Key, receiver string, args []string) *cmGame {
	g := &cmGame{program: "mckey", args: args, ready: make(chan struct{})}
	if k.SendOnly {
		g.args, k.SendOnly = append(g.args, "-o"), false
	}
	k.Source = netip.MustParseAddr(receiver)
	g.peer = func(ctx context.Context) error {
		messages, err := k.Receive(ctx, func() { close(g.ready) })
		return errors.Join(err, sameMessages([][][]byte{messages}))
	}
	return g
}

// mckeyGo plays both ends.
func mckeyGo(t *testing.T, k cmpeer.Key, receiver, sender string) {
	ctx := limit(t, 30*time.Second)
	to, from := k, k
	to.SendOnly = false
	to.Source, from.Source = netip.MustParseAddr(receiver), netip.MustParseAddr(sender)
	ready, received := make(chan struct{}), make(chan error, 1)
	go func() {
		messages, err := to.Receive(ctx, func() { close(ready) })
		for i, got := range messages {
			if want := cmpeer.Pattern(k.Size, i); !bytes.Equal(got, want) {
				err = errors.Join(err, fmt.Errorf("message %d is %x, want %x", i, got, want))
			}
		}
		received <- err
	}()
	select {
	case <-ready:
		testutil.Must(t, from.Send(ctx))
		testutil.Must(t, <-received)
	case err := <-received:
		t.Fatal(err)
	}
}

// joined waits until somebody here is in a group, and then for the C program, which does not
// say so, to attach its queue pair to it. The program gives itself time, too: it receives
// three seconds after it has joined.
func joined(ctx context.Context, group netip.Addr) error {
	b := group.As4()
	entry := fmt.Appendf(nil, "%08X ", binary.NativeEndian.Uint32(b[:]))
	for ctx.Err() == nil {
		groups, err := os.ReadFile("/proc/net/igmp")
		if err != nil {
			return err
		}
		if bytes.Contains(groups, entry) {
			time.Sleep(time.Second)
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return ctx.Err()
}

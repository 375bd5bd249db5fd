package flows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
)

// site is where a test runs: addresses of a device, on this kernel or another.
type site struct {
	addrs  []netip.Addr
	system []rdmacm.Option
	tries  int // on siw more than one: its kernel does not always see a client's first message
}

type (
	server = func(context.Context, func(netip.AddrPort)) error
	client = func(context.Context, netip.AddrPort) error
)

// all runs each flow once.
func all(t *testing.T, s site) {
	t.Run("compare", func(t *testing.T) {
		for _, addr := range s.addrs {
			t.Run(addr.String(), func(t *testing.T) { compare(t, s, addr) })
		}
	})
	t.Run("echo", func(t *testing.T) { echo(t, s) })
	t.Run("regions", func(t *testing.T) { exchange(t, s) })
	t.Run("file", func(t *testing.T) {
		for _, size := range []int{0, 1, chunk, 3*chunk + 17} {
			t.Run(fmt.Sprint(size), func(t *testing.T) { file(t, s, size) })
		}
	})
	t.Run("name", func(t *testing.T) { name(t, s) })
}

// game runs a server, and a client when the server can be reached.
func game(t *testing.T, s site, serve server, call client) {
	t.Helper()
	errServer, errClient := s.play(t, serve, call)
	if errServer != nil {
		t.Errorf("server: %v", errServer)
	}
	if errClient != nil {
		t.Errorf("client: %v", errClient)
	}
}

func (s site) play(t *testing.T, serve server, call client) (errServer, errClient error) {
	testutil.NoLeaks(t)
	for try := 1; ; try++ {
		errServer, errClient = s.once(serve, call)
		if try >= s.tries || !errors.Is(errClient, context.DeadlineExceeded) {
			return errServer, errClient
		}
		t.Logf("trying again: %v, %v", errServer, errClient)
	}
}

func (s site) once(serve server, call client) (errServer, errClient error) {
	patience := 30 * time.Second
	if s.tries > 1 {
		patience = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ready, served := make(chan netip.AddrPort, 1), make(chan error, 1)
	go func() { served <- serve(ctx, func(a netip.AddrPort) { ready <- a }) }()
	select {
	case addr := <-ready:
		if errClient = call(ctx, addr); errClient != nil {
			time.AfterFunc(time.Second, cancel) // the server should notice by itself
		}
		return <-served, errClient
	case errServer = <-served:
		return errServer, nil
	}
}

// listening gives the synchronous programs their listener.
func listening(s site, f func(context.Context, *rdmacm.Listener) error) server {
	return func(ctx context.Context, ready func(netip.AddrPort)) error {
		l, err := rdmacm.Listen(ctx, netip.AddrPortFrom(s.addrs[0], 0).String(), &rdmacm.Options{System: s.system})
		if err != nil {
			return err
		}
		ready(l.Addr())
		return errors.Join(f(ctx, l), l.Close())
	}
}

func compare(t *testing.T, s site, addr netip.Addr) {
	game(t, s, func(ctx context.Context, ready func(netip.AddrPort)) error {
		return CompareServer(ctx, netip.AddrPortFrom(addr, 0), ready, s.system...)
	}, func(ctx context.Context, addr netip.AddrPort) error {
		got, err := EchoClient(ctx, addr, []string{"hello"}, s.system...)
		if diff := cmp.Diff([]string{"HELLO"}, got); diff != "" && err == nil {
			err = errors.New(diff)
		}
		return err
	})
}

func echo(t *testing.T, s site) {
	texts := []string{"one", "", "three", strings.Repeat("x", room)}
	game(t, s, func(ctx context.Context, ready func(netip.AddrPort)) error {
		return EchoServer(ctx, netip.AddrPortFrom(s.addrs[0], 0), ready, s.system...)
	}, func(ctx context.Context, addr netip.AddrPort) error {
		got, err := EchoClient(ctx, addr, texts, s.system...)
		if diff := cmp.Diff(texts, got); diff != "" && err == nil {
			err = errors.New(diff)
		}
		return err
	})
}

func exchange(t *testing.T, s site) {
	check := func(want, written, read string, err error) error {
		if err == nil && (written != want || read != want) {
			err = fmt.Errorf("the peer wrote %q, and %q was read there, want %q", written, read, want)
		}
		return err
	}
	game(t, s, listening(s, func(ctx context.Context, l *rdmacm.Listener) error {
		written, read, err := RegionsServer(ctx, l, "of the server")
		return check("of the client", written, read, err)
	}), func(ctx context.Context, addr netip.AddrPort) error {
		written, read, err := RegionsClient(ctx, addr.String(), "of the client", s.system...)
		return check("of the server", written, read, err)
	})
}

func file(t *testing.T, s site, size int) {
	dir, err := os.OpenRoot(t.TempDir())
	testutil.Must(t, err)
	defer dir.Close()
	content := make([]byte, size)
	testutil.Fill(content, uint64(size))
	game(t, s, listening(s, func(ctx context.Context, l *rdmacm.Listener) error {
		name, err := ReceiveFile(ctx, l, dir)
		if err == nil && name != "a.file" {
			err = fmt.Errorf("the file is called %q", name)
		}
		return err
	}), func(ctx context.Context, addr netip.AddrPort) error {
		return SendFile(ctx, addr.String(), "a.file", bytes.NewReader(content), s.system...)
	})
	got, err := dir.ReadFile("a.file")
	testutil.Must(t, err)
	if !bytes.Equal(got, content) {
		t.Errorf("the file has %d bytes, or others, want %d", len(got), len(content))
	}
}

// name: one that leads out of the directory is refused, and the sender hears of it.
func name(t *testing.T, s site) {
	dir, err := os.OpenRoot(t.TempDir())
	testutil.Must(t, err)
	defer dir.Close()
	errServer, errClient := s.play(t, listening(s, func(ctx context.Context, l *rdmacm.Listener) error {
		_, err := ReceiveFile(ctx, l, dir)
		return err
	}), func(ctx context.Context, addr netip.AddrPort) error {
		return SendFile(ctx, addr.String(), "../a.file", strings.NewReader("x"), s.system...)
	})
	if errServer == nil || !strings.Contains(errServer.Error(), "escapes") {
		t.Errorf("the server ended with %v", errServer)
	}
	if errClient == nil {
		t.Error("the client got through")
	}
}

// TestDevice runs the flows on a real device.
func TestDevice(t *testing.T) {
	d := testutil.Device(t)
	s := site{tries: 1}
	if d.Protocol() == "iw" {
		s.tries = 4
	}
	for _, name := range d.NetDevs() {
		ifi, err := net.InterfaceByName(name)
		testutil.Must(t, err)
		addrs, err := ifi.Addrs()
		testutil.Must(t, err)
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
				s.addrs = append(s.addrs, p.Addr())
			}
		}
	}
	if len(s.addrs) == 0 {
		t.Fatalf("%s has no address: its interfaces are %v", d.Name(), d.NetDevs())
	}
	all(t, s)
}

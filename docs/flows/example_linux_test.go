package flows

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
)

// TestFake runs the flows on fake devices, of RoCE and of iWARP.
func TestFake(t *testing.T) {
	for name, driver := range map[string]uint32{"rxe": abi.RDMA_DRIVER_RXE, "siw": abi.RDMA_DRIVER_SIW} {
		t.Run(name, func(t *testing.T) {
			k := fakekernel.New(fakekernel.Options{Devices: []fakekernel.Device{{Driver: driver}}})
			defer k.Close()
			s := site{
				addrs:  []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("2001:db8:9::1")},
				system: []rdmacm.Option{rdmacm.WithSystem(k.System())},
			}
			all(t, s)
		})
	}
}

// fake is what the examples run on. On a real kernel leave the option away.
func fake() (context.Context, rdmacm.Option, func()) {
	kernel := fakekernel.New(fakekernel.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	return ctx, rdmacm.WithSystem(kernel.System()), func() { cancel(); kernel.Close() }
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// The server of the comparison with sockets, over both families.
func ExampleCompareServer() {
	ctx, system, end := fake()
	defer end()
	for _, addr := range []string{"10.9.0.1:7474", "[2001:db8:9::1]:7474"} {
		ready, served := make(chan netip.AddrPort, 1), make(chan error)
		go func() {
			served <- CompareServer(ctx, netip.MustParseAddrPort(addr), func(a netip.AddrPort) { ready <- a }, system)
		}()
		answer, err := EchoClient(ctx, <-ready, []string{"hello"}, system)
		check(err)
		check(<-served)
		fmt.Println(addr, "says", answer[0])
	}
	// Output:
	// 10.9.0.1:7474 says HELLO
	// [2001:db8:9::1]:7474 says HELLO
}

// Send and receive.
func ExampleEchoServer() {
	ctx, system, end := fake()
	defer end()
	ready, served := make(chan netip.AddrPort, 1), make(chan error)
	go func() {
		served <- EchoServer(ctx, netip.MustParseAddrPort("10.9.0.1:0"), func(a netip.AddrPort) { ready <- a }, system)
	}()
	echoes, err := EchoClient(ctx, <-ready, []string{"one", "two"}, system)
	check(err)
	check(<-served)
	fmt.Println(echoes)
	// Output: [one two]
}

// Memory that is open to the peer, written and read from there.
func ExampleRegionsServer() {
	ctx, system, end := fake()
	defer end()
	l, err := rdmacm.Listen(ctx, "10.9.0.1:0", &rdmacm.Options{System: []rdmacm.Option{system}})
	check(err)
	served := make(chan error)
	go func() {
		written, read, err := RegionsServer(ctx, l, "of the server")
		fmt.Printf("written here: %s; read there: %s\n", written, read)
		served <- err
	}()
	written, read, err := RegionsClient(ctx, l.Addr().String(), "of the client", system)
	check(err)
	check(<-served)
	check(l.Close())
	fmt.Printf("written here: %s; read there: %s\n", written, read)
	// Output:
	// written here: of the client; read there: of the client
	// written here: of the server; read there: of the server
}

// A file, piece by piece.
func ExampleSendFile() {
	ctx, system, end := fake()
	defer end()
	path, err := os.MkdirTemp("", "flows")
	check(err)
	defer os.RemoveAll(path)
	dir, err := os.OpenRoot(path)
	check(err)
	defer dir.Close()
	l, err := rdmacm.Listen(ctx, "10.9.0.1:0", &rdmacm.Options{System: []rdmacm.Option{system}})
	check(err)
	served := make(chan error)
	go func() {
		name, err := ReceiveFile(ctx, l, dir)
		fmt.Println("received", name)
		served <- err
	}()
	check(SendFile(ctx, l.Addr().String(), "letter.txt", strings.NewReader("Dear peer, ..."), system))
	check(<-served)
	check(l.Close())
	content, err := dir.ReadFile("letter.txt")
	check(err)
	fmt.Printf("%s\n", content)
	// Output:
	// received letter.txt
	// Dear peer, ...
}

// Command gocmtime is cmtime, either end: it makes and ends many connections on one event
// channel, step by step, and prints how long each step took. It is the Go side of the
// comparison of costs. Its server ends when all clients have gone.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/pureverbs/rdma/tests/cmpeer"
	"github.com/pureverbs/rdma/tests/profile"
)

func main() {
	server := flag.String("s", "", "address of the server to call")
	bind := flag.String("b", "0.0.0.0", "address to serve on")
	port := flag.Uint("p", 7471, "port")
	connections := flag.Int("c", 100, "connections")
	file := flag.String("cpuprofile", "", "file for a profile of where the time goes")
	flag.Parse()
	m := &cmpeer.Time{Connections: *connections}
	if err := profile.Run(*file, func() error { return run(m, *server, *bind, uint16(*port), os.Stdout) }); err != nil {
		fmt.Fprintln(os.Stderr, "gocmtime:", err)
		os.Exit(1)
	}
}

func run(m *cmpeer.Time, server, bind string, port uint16, out io.Writer) error {
	host := server
	if server == "" {
		host = bind
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return err
	}
	m.Addr = netip.AddrPortFrom(addr, port)
	if server == "" {
		return m.Serve(context.Background())
	}
	steps, err := m.Call(context.Background())
	for _, s := range steps {
		fmt.Fprintf(out, "%-13s: %11.2f ms %11.2f us / conn\n", s.Name,
			s.Took.Seconds()*1e3, float64(s.Took)/float64(time.Microsecond)/float64(m.Connections))
	}
	fmt.Fprintln(out, "peak", peak(), "kB")
	return err
}

// peak is the greatest resident size of this process in kB, 0 where that cannot be told.
func peak() (kB int) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, _ = fmt.Sscan(rest, &kB)
		}
	}
	return kB
}

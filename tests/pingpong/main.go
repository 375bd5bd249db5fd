// Command pingpong plays either end of ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong and
// ibv_srq_pingpong: same way of meeting over TCP, same order of posts, same figures. It is
// the Go side of interoperability tests at the level of verbs, and of the comparison of costs.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/pureverbs/rdma/tests/profile"
)

type options struct {
	transport string
	device    string
	port      int
	gidIndex  int
	size      int // 0 is the C program's own
	pairs     int // 0 is the C program's own
	iters     int
	depth     int
	events    bool
	block     bool   // the thread, in events
	server    string // "" is the server's side
}

func main() {
	var o options
	flag.StringVar(&o.transport, "t", "rc", "which program the peer is: rc, uc, ud or srq")
	flag.StringVar(&o.device, "d", "", "device")
	flag.IntVar(&o.port, "p", 18515, "TCP port to meet at")
	flag.IntVar(&o.gidIndex, "g", 1, "index of the own GID")
	flag.IntVar(&o.size, "s", 0, "bytes a message (default 4096, ud 1024)")
	flag.IntVar(&o.pairs, "q", 0, "queue pairs, with -t srq (default 16)")
	flag.IntVar(&o.iters, "n", 1000, "messages")
	flag.IntVar(&o.depth, "r", 500, "receives to keep posted")
	flag.BoolVar(&o.events, "e", false, "sleep on completion events")
	flag.BoolVar(&o.block, "block", false, "sleep with the thread, as C does; means -e")
	file := flag.String("cpuprofile", "", "file for a profile of where the time goes")
	flag.Parse()
	o.server = flag.Arg(0)
	o.events = o.events || o.block
	err := profile.Run(*file, func() error {
		_, err := run(context.Background(), o, os.Stdout)
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "pingpong:", err)
		os.Exit(1)
	}
}

// run plays one whole game, writes the figures to out and returns the message that came last.
func run(ctx context.Context, o options, out io.Writer) (last []byte, err error) {
	t, err := o.complete()
	if err != nil {
		return nil, err
	}
	e, err := open(t, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.owned.Close()) }()
	if err := e.refill(o.depth); err != nil {
		return nil, err
	}
	if err := meet(ctx, o, e.addresses(), t.slots, e.connect); err != nil {
		return nil, err
	}
	start := time.Now()
	if err := e.play(ctx, o); err != nil {
		return nil, err
	}
	figures(out, o, time.Since(start).Seconds())
	return e.message(o)
}

func figures(out io.Writer, o options, seconds float64) {
	sum := 2 * o.size * o.iters
	fmt.Fprintf(out, "%d bytes in %.2f seconds = %.2f Mbit/sec\n", sum, seconds, float64(sum)*8/1e6/seconds)
	fmt.Fprintf(out, "%d iters in %.2f seconds = %.2f usec/iter\n", o.iters, seconds, seconds*1e6/float64(o.iters))
}

// complete fills in what was left to the transport, and checks.
func (o *options) complete() (*transport, error) {
	t, ok := transports[o.transport]
	if !ok {
		return nil, fmt.Errorf("no transport %q: rc, uc, ud or srq", o.transport)
	}
	if o.size == 0 {
		o.size = t.size
	}
	if o.pairs == 0 {
		o.pairs = t.pairs
	}
	switch {
	case o.size < 0 || o.iters < 1 || o.gidIndex < 0 || o.gidIndex > 255:
		return nil, errors.New("size, number of messages or index of the GID out of range")
	case o.pairs < 1 || o.pairs > t.maxPairs():
		return nil, fmt.Errorf("%d queue pairs, %s has 1 to %d", o.pairs, o.transport, t.maxPairs())
	case o.depth < o.pairs:
		return nil, fmt.Errorf("%d receives for %d queue pairs, each needs one", o.depth, o.pairs)
	}
	return t, nil
}

// The client's messages hold this byte. The peer sends from the memory that it receives
// into, so that they come back.
const fill = 0xa5

// message is what came last. The client knows what it has to be.
func (e *end) message(o options) ([]byte, error) {
	got := bytes.Clone(e.mr.Bytes()[e.grh:][:o.size])
	if want := bytes.Repeat([]byte{fill}, o.size); o.server != "" && !bytes.Equal(got, want) {
		return nil, errors.New("the peer did not send back the bytes that it was sent")
	}
	return got, nil
}

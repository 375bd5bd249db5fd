// Command perftest plays either end of perftest's latency programs ib_send_lat, ib_write_lat,
// ib_read_lat and ib_atomic_lat: it speaks their handshake, over TCP or over a connection of
// the connection manager (-R), and does what the program on the other side expects. It is
// the Go side of interoperability tests at the level of verbs.
//
// The protocol is that of perftest 4.5, which calls itself version 6.06. Newer ones adapt to
// the older of the two.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

type options struct {
	test      string // send, write, read or atomic
	transport string // RC, UC or UD
	atomic    string
	device    string
	gidIndex  int
	port      int
	size      int // 0 is the C program's own
	iters     int
	events    bool
	cm        bool
	server    string // "" is the server's side
}

func main() {
	var o options
	flag.StringVar(&o.test, "t", "send", "which program the peer is: send, write, read or atomic")
	flag.StringVar(&o.transport, "c", "RC", "transport: RC, UC or UD")
	flag.StringVar(&o.atomic, "A", fetchAdd, "the atomic operation: "+fetchAdd+" or "+compareSwap)
	flag.StringVar(&o.device, "d", "", "device, without -R")
	flag.IntVar(&o.gidIndex, "x", 1, "index of the own GID, without -R")
	flag.IntVar(&o.port, "p", 18515, "port to meet at")
	flag.IntVar(&o.size, "s", 0, "bytes a message (default 2, atomic 8)")
	flag.IntVar(&o.iters, "n", 1000, "messages")
	flag.BoolVar(&o.events, "e", false, "sleep on completion events")
	flag.BoolVar(&o.cm, "R", false, "connect by the connection manager")
	limit := flag.Duration("timeout", time.Minute, "give up after that")
	flag.Parse()
	o.server = flag.Arg(0)
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "perftest:", err)
		os.Exit(1)
	}
}

// run plays one whole test and writes the mean latency to out. Iterations of send and write
// are round trips and count half, as in the C programs.
func run(ctx context.Context, o options, out io.Writer) error {
	t, err := o.complete()
	if err != nil {
		return err
	}
	took, err := t.run(ctx, o)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: the peer has to run the same test, with the same options", err)
	}
	if err != nil {
		return err
	}
	mean := took.Seconds() * 1e6 / float64(o.iters)
	switch {
	case t.bothWays:
		mean /= 2
	case o.server == "":
		return nil // the client did all
	}
	fmt.Fprintf(out, "%d bytes, %d iterations, %.2f usec on average\n", o.size, o.iters, mean)
	return nil
}

func (t *test) run(ctx context.Context, o options) (took time.Duration, err error) {
	l, err := meet(ctx, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	h := handshake{link: l, client: o.server != ""}
	mtu, err := h.greet(ctx)
	if err != nil {
		return 0, err
	}
	e := &end{t: t, options: o, mtu: mtu}
	defer func() { err = errors.Join(err, e.owned.Close()) }()
	if err := l.pair(ctx, h, e); err != nil {
		return 0, err
	}
	if err := e.introduce(ctx, h); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := t.play(ctx, e); err != nil {
		return 0, err
	}
	took = time.Since(start)
	return took, e.part(ctx, h)
}

func meet(ctx context.Context, o options) (link, error) {
	if o.cm {
		return meetByCM(ctx, o)
	}
	return meetByTCP(ctx, o)
}

const (
	maxSize  = 1 << 23
	maxIters = 1 << 20
)

// complete fills in what was left to the test, and checks.
func (o *options) complete() (*test, error) {
	t, ok := tests[o.test]
	if !ok {
		return nil, fmt.Errorf("no test %q: send, write, read or atomic", o.test)
	}
	typ, ok := transports[o.transport]
	if o.size == 0 {
		o.size = t.size
	}
	switch {
	case !ok || typ == uverbs.QPTypeUD && o.test != "send" || typ == uverbs.QPTypeUC && !t.bothWays:
		return nil, fmt.Errorf("transport %q: RC, or UC for send and write, or UD for send", o.transport)
	case o.cm && typ != uverbs.QPTypeRC:
		return nil, errors.New("the connection manager makes reliable connections only: -R needs -c RC")
	case o.test == "atomic" && o.size != 8:
		return nil, errors.New("atomic operations have 8 bytes")
	case o.test == "atomic" && o.atomic != fetchAdd && o.atomic != compareSwap:
		return nil, fmt.Errorf("no atomic operation %q: %s or %s", o.atomic, fetchAdd, compareSwap)
	case o.events && o.test == "write":
		return nil, errors.New("the write test polls memory, there is no event")
	case o.size < 1 || o.size > maxSize || o.iters < 5 || o.iters > maxIters || o.gidIndex < 0 || o.gidIndex > 255:
		return nil, errors.New("size, number of messages or index of the GID out of range")
	}
	return t, nil
}

var transports = map[string]uverbs.QPType{"RC": uverbs.QPTypeRC, "UC": uverbs.QPTypeUC, "UD": uverbs.QPTypeUD}

// Command pingpong plays either end of ibv_rc_pingpong: same way of meeting over TCP, same
// order of posts, same figures. It is the Go side of interoperability tests at the level of
// verbs, and of the comparison of costs.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

type options struct {
	device   string
	port     int
	gidIndex int
	size     int
	iters    int
	depth    int
	events   bool
	server   string // "" is the server's side
}

func main() {
	var o options
	flag.StringVar(&o.device, "d", "", "device")
	flag.IntVar(&o.port, "p", 18515, "TCP port to meet at")
	flag.IntVar(&o.gidIndex, "g", 1, "index of the own GID")
	flag.IntVar(&o.size, "s", 4096, "bytes a message")
	flag.IntVar(&o.iters, "n", 1000, "messages")
	flag.IntVar(&o.depth, "r", 500, "receives to keep posted")
	flag.BoolVar(&o.events, "e", false, "sleep on completion events")
	profile := flag.String("cpuprofile", "", "file for a profile of where the time goes")
	flag.Parse()
	o.server = flag.Arg(0)
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "pingpong:", err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	if err := run(context.Background(), o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pingpong:", err)
		os.Exit(1)
	}
}

// run plays one whole game and writes the figures to out.
func run(ctx context.Context, o options, out io.Writer) error {
	e, err := open(o)
	if err != nil {
		return err
	}
	defer e.close()
	me := address{qpn: e.qp.Num(), psn: rand.Uint32() & 0xffffff, gid: e.gid}
	if err := e.refill(o.depth); err != nil {
		return err
	}
	if err := meet(ctx, o, me, func(peer address) error { return e.connect(me, peer) }); err != nil {
		return err
	}
	start := time.Now()
	if err := e.play(ctx, o); err != nil {
		return err
	}
	took := time.Since(start)
	bytes := 2 * o.size * o.iters
	fmt.Fprintf(out, "%d bytes in %.2f seconds = %.2f Mbit/sec\n", bytes, took.Seconds(), float64(bytes)*8/1e6/took.Seconds())
	fmt.Fprintf(out, "%d iters in %.2f seconds = %.2f usec/iter\n", o.iters, took.Seconds(), took.Seconds()*1e6/float64(o.iters))
	return nil
}

// The work requests' numbers are bits, so that what is still open is a set.
const (
	recvID = 1
	sendID = 2
)

func (e *end) play(ctx context.Context, o options) error {
	open := uint64(recvID)
	if o.server != "" {
		if err := e.send(); err != nil {
			return err
		}
		open |= sendID
	}
	posted, received, sent := o.depth, 0, 0
	wcs := make([]uverbs.WC, 2)
	for received < o.iters || sent < o.iters {
		n, err := e.completions(ctx, wcs, o.events)
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			wc := &wcs[i]
			if err := wc.Err(); err != nil {
				return err
			}
			if wc.ID == sendID {
				sent++
			} else {
				received++
				if posted--; posted <= 1 {
					if err := e.refill(o.depth - posted); err != nil {
						return err
					}
					posted = o.depth
				}
			}
			if open &^= wc.ID; open == 0 && sent < o.iters {
				if err := e.send(); err != nil {
					return err
				}
				open = recvID | sendID
			}
		}
	}
	return nil
}

func (e *end) completions(ctx context.Context, wcs []uverbs.WC, events bool) (int, error) {
	if events {
		return e.cq.Wait(ctx, wcs)
	}
	for {
		if n, err := e.cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
	}
}

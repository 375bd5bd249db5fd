package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const perfLong = `perf measures latency (lat) and bandwidth (bw) between two hosts. On the other
one runs 'rdma-ping perf serve', which is told by the client what to do.

Exit status: 0 measured, 1 messages were lost (uc, ud) or, with --verify, had
wrong contents, 2 could not run.`

const perfExample = `  rdma-ping perf serve                             the other side
  rdma-ping perf lat 10.9.0.1                      half round trips of 64 bytes
  rdma-ping perf lat -o read --sizes 2..64k 10.9.0.1
  rdma-ping perf bw -o write -d 5s --qps 4 10.9.0.1
  rdma-ping perf bw --sizes 2..8M --csv 10.9.0.1   a sweep, for a spreadsheet
  rdma-ping perf bw -t ud -s 1k --tcp --device rxe0 10.9.0.1`

func (a *app) perfCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "perf",
		Short:   "Measure latency and bandwidth",
		Long:    perfLong,
		Example: perfExample,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("perf: no command %q: use lat, bw or serve", args[0])
			}
			return usagef("perf: what? use lat, bw or serve")
		},
		DisableFlagsInUseLine: true,
	}
	cmd.AddCommand(a.perfRunCommand(perfLat), a.perfRunCommand(perfBW), a.perfServeCommand())
	return cmd
}

const perfLatLong = `lat sends one message after the other and prints how long they took: percentiles
of each size.

For send and write the other side answers with a message of the same size, and
the time is half of the round trip. A read or an atomic operation goes there and
back by itself, and its time is all of it. write watches memory for the answer
and spins, whatever --poll says.`

const perfBWLong = `bw keeps --depth messages under way on each queue pair and prints what they
carry, in Gb/s (1e9 bits), MiB/s (1048576 bytes) and messages a second.

The time is from the first message that counts to the last completion. On iWARP,
uc and ud a completion says that a message was handed to the network; for send
the other side's acknowledgements count as well.`

// perfOptions is the command line of lat and bw.
type perfOptions struct {
	plan      perfPlan
	op        string
	transport string
	sizes     []int
	count     uint64
	duration  time.Duration
	warmup    uint32
	timeout   time.Duration
	port      uint16
	source    string
	waiting
	tcp       bool
	device    string
	gidIndex  int
	json, csv bool
	perftest  bool
	histogram histogramChoice
	plot      plotFile
}

func defaultPerfOptions(mode perfMode) perfOptions {
	o := perfOptions{
		plan: perfPlan{mode: mode, qps: 1, depth: 1, batch: 1}, op: "send", transport: "rc", sizes: []int{64},
		count: 1000, warmup: 100, timeout: perfPatience, port: perfPort, gidIndex: -1,
	}
	if mode == perfBW {
		o.plan.depth, o.sizes = 64, []int{64 << 10}
	}
	return o
}

func (o *perfOptions) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&o.op, "op", "o", o.op, "`operation`: send, write, read or atomic (8 bytes)")
	f.StringVarP(&o.transport, "transport", "t", o.transport, "`type` of the queue pairs: rc, uc (send, write) or ud (send)")
	f.VarP(sizesValue{&o.sizes}, "sizes", "s", "bytes a message: 4k, a list 64,4k,1M, or a sweep 2..8M that doubles")
	f.Uint64VarP(&o.count, "count", "c", o.count, "`messages` of each size, on each queue pair")
	f.VarP(secondsValue{&o.duration, 0, perfMaxTime}, "duration", "d", "how long to send each size, in place of --count")
	f.Uint32Var(&o.warmup, "warmup", o.warmup, "`messages` before those that count")
	f.IntVar(&o.plan.qps, "qps", o.plan.qps, "queue pairs, each with a goroutine")
	if o.plan.mode == perfBW {
		f.IntVar(&o.plan.depth, "depth", o.plan.depth, "messages under way at a time, on each queue pair")
		f.IntVar(&o.plan.batch, "batch", o.plan.batch, "messages posted at a time, with one doorbell and one completion")
		f.BoolVarP(&o.plan.bidirectional, "bidirectional", "b", false, "both sides send; the figures are sums")
	} else {
		o.histogram.addFlag(f, "each size, at the end")
		f.BoolVar(&o.perftest, "perftest", false, "the server is ib_send_lat, ib_write_lat, ib_read_lat or ib_atomic_lat with -R")
	}
	f.BoolVar(&o.plan.verify, "verify", false, "check what arrives; takes time of its own")
	o.waiting.addFlags(f, "queue pair")
	f.VarP(secondsValue{&o.timeout, time.Millisecond, time.Hour}, "timeout", "W", "how long nothing may happen")
	f.Uint16VarP(&o.port, "port", "p", o.port, "`port` of the server, if ADDR names none")
	f.StringVarP(&o.source, "source", "I", "", "`address` to connect from")
	f.BoolVar(&o.tcp, "tcp", false, "meet over TCP and connect queue pairs by hand, not by rdma_cm")
	f.StringVar(&o.device, "device", "", "with --tcp: `name` of the device (default the one with the own address)")
	f.IntVar(&o.gidIndex, "gid-index", -1, "with --tcp: `index` of the own GID, port 1 (default that of the own address)")
	f.BoolVar(&o.json, "json", false, "print one JSON object a line")
	f.BoolVar(&o.csv, "csv", false, "print comma-separated values")
	o.plot.addFlag(f)
}

func (a *app) perfRunCommand(mode perfMode) *cobra.Command {
	o := defaultPerfOptions(mode)
	cmd := &cobra.Command{
		Use: "lat [flags] ADDR", Short: "Measure how long messages take", Long: perfLatLong,
		Args: oneAddress, DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd.Flags()); err != nil {
				return err
			}
			return a.perf(cmd.Context(), &o, args[0])
		},
	}
	if mode == perfBW {
		cmd.Use, cmd.Short, cmd.Long = "bw [flags] ADDR", "Measure how much messages carry", perfBWLong
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// complete fills in the plan and checks what no server needs to be asked about.
func (o *perfOptions) complete(f *pflag.FlagSet) error {
	op, transport := slices.Index(perfOps, strings.ToLower(o.op)), slices.Index(perfTransports, strings.ToLower(o.transport))
	switch {
	case op < 1:
		return usagef("--op %q: send, write, read or atomic", o.op)
	case transport < 1:
		return usagef("--transport %q: rc, uc or ud", o.transport)
	case f.Changed("duration") && f.Changed("count"):
		return usagef("--count and --duration exclude each other")
	case f.Changed("duration") && o.duration == 0:
		return usagef("--duration 0: nothing would be sent")
	case o.json && o.csv:
		return usagef("--json and --csv exclude each other")
	case o.histogram.forced() && (o.json || o.csv):
		return usagef("--histogram and --json or --csv exclude each other")
	case !o.tcp && (o.device != "" || o.gidIndex >= 0):
		return usagef("--device and --gid-index go with --tcp: rdma_cm finds the device by the address")
	case o.plot != "" && o.plan.mode == perfBW && oneSize(o.sizes):
		return &usageError{errOneSize}
	case o.gidIndex < -1 || o.gidIndex > 255:
		return usagef("--gid-index %d: from 0 to 255", o.gidIndex)
	}
	if err := o.waiting.check(); err != nil {
		return err
	}
	o.plan.op, o.plan.transport, o.plan.cm = perfOp(op), perfTransport(transport), !o.tcp
	if o.plan.op == perfAtomic && !f.Changed("sizes") {
		o.sizes = []int{8}
	}
	o.plan.size = slices.Max(o.sizes)
	if o.duration > 0 {
		o.count = 0
	}
	if err := o.plan.check(); err != nil {
		return &usageError{err}
	}
	for _, size := range o.sizes {
		r := o.round(size)
		if err := r.check(&o.plan); err != nil {
			return &usageError{err}
		}
	}
	if o.perftest {
		return o.checkPerftest()
	}
	return nil
}

func (o *perfOptions) round(size int) perfRound {
	return perfRound{size: size, warmup: int(o.warmup), count: o.count, duration: o.duration}
}

// perf is the client from the address to the last line.
func (a *app) perf(ctx context.Context, o *perfOptions, text string) error {
	addr, source, err := pingAddrs(ctx, &pingOptions{port: o.port, source: o.source}, text)
	if err != nil {
		return err
	}
	if err := o.plot.check(); err != nil {
		return err
	}
	if err := a.usableDevice(); err != nil {
		return err
	}
	if err := a.knownDevice(o.device); err != nil {
		return err
	}
	c := &perfClient{app: a, opts: o, addr: addr, source: source}
	c.plan, c.waiting, c.timeout = o.plan, o.waiting, o.timeout
	c.out = newPerfReporter(a.stdout, o)
	picture := &perfPicture{perfReporter: c.out}
	if o.plot != "" {
		c.out = picture
	}
	c.progress = newProgress(a.stderr, o)
	if o.perftest {
		err = c.runPerftest(ctx)
	} else {
		err = c.run(ctx)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	case err == nil:
		a.picture(o.plot, picture.plot)
	}
	return err
}

// perfClient is a run of the client.
type perfClient struct {
	perfSide
	app      *app
	opts     *perfOptions
	addr     netip.AddrPort
	source   netip.AddrPort
	out      perfReporter
	progress *perfProgress
}

// target is what the output says about the run.
func (c *perfClient) target(device string) *perfTarget {
	connection := "rdma_cm"
	switch {
	case c.opts.perftest:
		connection = "rdma_cm, perftest"
	case c.opts.tcp:
		connection = "by hand over TCP"
	case c.way != nil:
		connection = "by hand over rdma_cm"
	}
	return &perfTarget{
		plan: &c.plan, addr: c.addr, device: device, connection: connection, waiting: c.waiting, sizes: c.opts.sizes,
	}
}

// report prints a result, and makes the exit status that of loss.
func (c *perfClient) report(r *perfResult) {
	c.out.result(r)
	if r.lost > 0 || r.corrupt {
		c.app.status = statusLost
	}
}

// within cuts a sweep of datagrams to what fits into one.
func (c *perfClient) within(mtu int) error {
	if c.plan.transport != perfUD || c.plan.size <= mtu {
		return nil
	}
	sizes := slices.DeleteFunc(slices.Clone(c.opts.sizes), func(n int) bool { return n > mtu })
	if len(sizes) == 0 {
		return usagef("a datagram carries at most %d bytes here, the MTU: ask for less with -s", mtu)
	}
	fmt.Fprintf(c.app.stderr, "rdma-ping: %d sizes left out: a datagram carries at most %d bytes here, the MTU\n", len(c.opts.sizes)-len(sizes), mtu)
	c.opts.sizes = sizes
	c.plan.size = slices.Max(sizes)
	return nil
}

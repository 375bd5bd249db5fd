package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// perfPort is perftest's, so that its clients, if they come by mistake, are told.
const perfPort = 18515

type perfServeOptions struct {
	address    string
	port       uint16
	maxClients int
	maxQPs     int
	maxSize    int
	maxMemory  int
	maxTime    time.Duration
	idle       time.Duration
	waiting
	quiet    bool
	tcp      bool
	device   string
	gidIndex int
	perftest perftestOptions
}

func defaultPerfServeOptions() perfServeOptions {
	return perfServeOptions{
		port: perfPort, maxClients: 4, maxQPs: 16, maxSize: 8 << 20, maxMemory: 64 << 20, maxTime: 10 * time.Minute, idle: time.Minute,
		gidIndex: -1, perftest: perftestOptions{size: 64, count: 1000, op: "send"},
	}
}

func (o *perfServeOptions) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&o.address, "address", "a", "", "`address` to listen on (default all, IPv4 and IPv6)")
	f.Uint16VarP(&o.port, "port", "p", o.port, "`port` to listen on")
	f.IntVar(&o.maxClients, "max-clients", o.maxClients, "clients served at a time; more are refused")
	f.IntVar(&o.maxQPs, "max-qps", o.maxQPs, "queue pairs that a client may have")
	f.Var(sizeValue{&o.maxSize, perfMaxSize}, "max-size", "largest message that a client may ask for")
	f.Var(sizeValue{&o.maxMemory, 1 << 30}, "max-memory", "memory that is registered for a client")
	f.Var(secondsValue{&o.maxTime, time.Second, perfMaxTime}, "max-time", "how long a client may stay")
	f.Var(secondsValue{&o.idle, time.Millisecond, perfMaxTime}, "idle-timeout", "drop clients that begin nothing for this long")
	o.waiting.addFlags(f, "queue pair")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not print clients coming and going")
	f.BoolVar(&o.tcp, "tcp", false, "meet clients over TCP and connect queue pairs by hand, not by rdma_cm")
	f.StringVar(&o.device, "device", "", "with --tcp: `name` of the device (default the one with the address)")
	f.IntVar(&o.gidIndex, "gid-index", -1, "with --tcp: `index` of the own GID, port 1 (default that of the address)")
	o.perftest.addFlags(f)
}

const perfServeLong = `serve is the other side of 'rdma-ping perf lat' and 'rdma-ping perf bw', until
Ctrl-C. The client says what is measured.

It may face strangers, on a network that is yours: every queue pair has its own
protection domain, a client can name no memory but that of its own queue pair,
and what it can take is bounded: clients, queue pairs, memory and time. It can
keep this host's network and CPUs busy, that is what it is for.

With --perftest it is the server of one of perftest's programs with -R instead:
ib_send_lat, ib_write_lat, ib_read_lat or ib_atomic_lat, one client after the
other. They agree on nothing, so --op, --size and --count must be what the
client was given.`

func (a *app) perfServeCommand() *cobra.Command {
	o := defaultPerfServeOptions()
	cmd := &cobra.Command{
		Use:     "serve [flags]",
		Short:   "Answer perf clients",
		Long:    perfServeLong,
		Example: "  rdma-ping perf serve\n  rdma-ping perf serve --tcp --device rxe0\n  rdma-ping perf serve --perftest --op write --size 64 --count 1000",
		Args:    noArguments, DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd.Flags()); err != nil {
				return err
			}
			return a.perfServe(cmd.Context(), &o)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *perfServeOptions) check(f *pflag.FlagSet) error {
	if err := checkMaxClients(o.maxClients); err != nil {
		return err
	}
	switch {
	case o.maxQPs < 1 || o.maxQPs > perfMaxQPs:
		return usagef("--max-qps %d: from 1 to %d", o.maxQPs, perfMaxQPs)
	case o.maxSize < 1:
		return usagef("--max-size 0: at least 1 byte")
	case o.maxMemory < 1:
		return usagef("--max-memory 0: at least 1 byte")
	case !o.perftest.on && (f.Changed("op") || f.Changed("size") || f.Changed("count")):
		return usagef("--op, --size and --count go with --perftest: other clients say what they want")
	case o.gidIndex < -1 || o.gidIndex > 255:
		return usagef("--gid-index %d: from 0 to 255", o.gidIndex)
	case !o.tcp && (o.device != "" || o.gidIndex >= 0):
		return usagef("--device and --gid-index go with --tcp: rdma_cm finds the device by the address")
	case o.tcp && o.perftest.on:
		return usagef("--perftest and --tcp exclude each other: only perftest's -R is spoken")
	}
	return o.perftest.check()
}

// allow holds a plan against the limits.
func (o *perfServeOptions) allow(p *perfPlan) error {
	switch {
	case p.size > o.maxSize:
		return &perfRefusal{reason: perfTooLarge, limit: uint32(o.maxSize), why: fmt.Sprintf("wants messages of %d bytes, --max-size is %d", p.size, o.maxSize)}
	case p.qps > o.maxQPs:
		return &perfRefusal{reason: perfTooMany, limit: uint32(o.maxQPs), why: fmt.Sprintf("wants %d queue pairs, --max-qps is %d", p.qps, o.maxQPs)}
	case p.memory() > int64(o.maxMemory):
		return &perfRefusal{reason: perfTooMuch, limit: uint32(o.maxMemory >> 10), why: fmt.Sprintf("wants %d bytes of memory, --max-memory is %d", p.memory(), o.maxMemory)}
	}
	return nil
}

func (a *app) perfServe(ctx context.Context, o *perfServeOptions) error {
	if err := o.waiting.check(); err != nil {
		return err
	}
	addrs, err := listenAddrs(o.address, o.port)
	if err != nil {
		return err
	}
	if err := a.usableDevice(); err != nil {
		return err
	}
	if err := a.knownDevice(o.device); err != nil {
		return err
	}
	s := &perfService{opts: o, app: a, log: a.stdout, places: make(chan struct{}, o.maxClients), sessions: map[uint64]*perfSession{}}
	if o.tcp {
		return s.serveTCP(ctx, addrs)
	}
	if err := a.reachable(addrs); err != nil {
		return err
	}
	return s.serveCM(ctx, addrs)
}

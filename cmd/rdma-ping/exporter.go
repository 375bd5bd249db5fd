package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/uverbs"
)

// exporterOptions is the command line of --exporter, which pings for ever and serves what it
// finds to Prometheus.
type exporterOptions struct {
	address string
	targets string // a file
}

func (e *exporterOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&e.address, "exporter", "", "ping all ADDR for ever, and serve metrics for Prometheus at `:PORT` or ADDR:PORT")
	f.StringVar(&e.targets, "targets", "", "with --exporter: `file` with an address a line, # begins a comment")
}

// exporting tells whether it is the exporter that is called for, rightly or not.
func exporting(f *pflag.FlagSet) bool { return f.Changed("exporter") || f.Changed("targets") }

// exporterFlags are those of ping that mean something to an exporter. All others, also those
// to come, are about a run that ends, or about what it prints.
func exporterFlags() []string {
	return []string{"exporter", "targets", "interval", "size", "timeout", "port", "source", "poll", "block", "rping"}
}

// check finds mistakes before anything is sent.
func (e *exporterOptions) check(f *pflag.FlagSet, o *pingOptions) (err error) {
	if !f.Changed("exporter") {
		return usagef("--targets goes with --exporter")
	}
	f.Visit(func(flag *pflag.Flag) {
		if err == nil && !slices.Contains(exporterFlags(), flag.Name) {
			err = usagef("--%s does not go with --exporter", flag.Name)
		}
	})
	if err != nil {
		return err
	}
	_, port, splitErr := net.SplitHostPort(e.address)
	if _, portErr := strconv.ParseUint(port, 10, 16); splitErr != nil || portErr != nil {
		return usagef("--exporter %q: want [ADDR]:PORT, like :9417", e.address)
	}
	if _, err := netip.ParseAddr(o.source); o.source != "" && err != nil {
		return usagef("source %q is not an IP address", o.source)
	}
	switch {
	case o.interval < time.Millisecond:
		return usagef("-i %v: at least 1ms with --exporter, which does it for ever", o.interval)
	case o.rping && o.size == 0:
		return usagef("--rping needs a size of at least 1 (-s)")
	}
	return o.waiting.check()
}

// export pings all targets until the context ends. Only what keeps it from serving is an
// error: that a target, or the device, cannot be had is in the metrics.
func (a *app) export(ctx context.Context, f *pflag.FlagSet, e *exporterOptions, o *pingOptions, args []string) error {
	if err := e.check(f, o); err != nil {
		return err
	}
	targets, err := e.list(args)
	if err != nil {
		return err
	}
	if _, err := uverbs.Devices(a.verbsOptions()...); errors.Is(err, uapi.ErrNotLinux) {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.address)
	if err != nil {
		return fmt.Errorf("--exporter %s: %w", e.address, err)
	}
	x := &exporter{app: a, opts: o, metrics: newMetrics()}
	x.print("serving metrics on http://%v/metrics, pinging %d targets", ln.Addr(), len(targets))
	return x.run(ctx, ln, targets)
}

// exporter is a running rdma-ping --exporter.
type exporter struct {
	app     *app
	opts    *pingOptions
	metrics *metrics
	mu      sync.Mutex // one line at a time
}

func (x *exporter) print(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	fmt.Fprintf(x.app.stdout, format+"\n", args...)
}

// run serves and pings until the context ends, and then gives everything back.
func (x *exporter) run(ctx context.Context, ln net.Listener, targets []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := httpServer(x.metrics.handler())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	var peers sync.WaitGroup
	for _, name := range targets {
		p := &exporterPeer{exporter: x, name: name, metrics: x.metrics.peer(name)}
		peers.Go(func() { p.run(ctx) })
	}
	var err error
	select {
	case err = <-served:
		err = errors.Join(err, server.Close())
	case <-ctx.Done():
		err = shutDown(server)
		<-served
	}
	cancel()
	peers.Wait()
	x.print("stopped")
	return err
}

// httpServer has limits: whoever can reach the port may be slow, or worse.
func httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
}

// shutDown lets scrapes that are under way end, if they do so soon.
func shutDown(s *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.Shutdown(ctx) == nil {
		return nil
	}
	return s.Close()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pureverbs/rdma/rdmacm"
)

type serveOptions struct {
	address    string
	port       uint16
	maxClients int
	maxSize    int
	idle       time.Duration
	waiting
	quiet bool
}

func defaultServeOptions() serveOptions {
	return serveOptions{port: defaultPort, maxClients: 64, maxSize: 1 << 20, idle: time.Minute}
}

func (o *serveOptions) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&o.address, "address", "a", "", "`address` to listen on (default all, IPv4 and IPv6)")
	f.Uint16VarP(&o.port, "port", "p", o.port, "`port` to listen on")
	f.IntVar(&o.maxClients, "max-clients", o.maxClients, "clients served at a time; more are refused")
	f.Var(sizeValue{&o.maxSize, maxData}, "max-size", "largest message that a client may ask for")
	f.Var(secondsValue{&o.idle, time.Millisecond, 24 * time.Hour}, "idle-timeout", "close connections after this long without a request")
	o.waiting.addFlags(f, "client")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not print clients coming and going")
}

const serveLong = `serve answers rdma-ping and, on the same port, rping -c of rdma-core, until
Ctrl-C.

It may face strangers: every client has its own protection domain, no memory of
the server can be named by a client, and what a client can take is bounded: the
number of clients, the memory each pins (a few messages of --max-size) and the
time a silent one is kept.`

func (a *app) serveCommand() *cobra.Command {
	o := defaultServeOptions()
	cmd := &cobra.Command{
		Use:                   "serve [flags]",
		Short:                 "Answer rdma-ping and rping clients",
		Long:                  serveLong,
		Example:               "  rdma-ping serve\n  rdma-ping serve -a fe80::1%eth0 --max-size 4k",
		Args:                  noArguments,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), &o) },
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (a *app) serve(ctx context.Context, o *serveOptions) error {
	if err := checkMaxClients(o.maxClients); err != nil {
		return err
	}
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
	if err := a.reachable(addrs); err != nil {
		return err
	}
	s := &echoService{opts: o, log: a.stdout, places: make(chan struct{}, o.maxClients)}
	if err := s.listen(ctx, addrs, a.cmOptions()); err != nil {
		return err
	}
	return s.run(ctx)
}

// mostClients is more than any device has queue pairs for, and few enough for a backlog.
const mostClients = 1 << 20

func checkMaxClients(n int) error {
	if n < 1 || n > mostClients {
		return usagef("--max-clients %d: at least one, at most %d", n, mostClients)
	}
	return nil
}

// echoService is a running rdma-ping serve.
type echoService struct {
	opts      *serveOptions
	listeners []*rdmacm.Listener
	places    chan struct{} // one token for each client
	sessions  sync.WaitGroup
	clients   atomic.Uint64
	mu        sync.Mutex // one line at a time
	log       io.Writer
}

// listen opens a listener on each address that can be had; one is enough. The error is that
// of the last: the IPv4 wildcard can be had unless something is really wrong.
func (s *echoService) listen(ctx context.Context, addrs []netip.AddrPort, opts []rdmacm.Option) error {
	var last error
	for _, addr := range addrs {
		ln, err := rdmacm.Listen(ctx, addr.String(), &rdmacm.Options{Backlog: s.opts.maxClients, System: opts})
		if err != nil {
			last = err
			continue
		}
		s.listeners = append(s.listeners, ln)
	}
	if len(s.listeners) == 0 {
		return last
	}
	return nil
}

// run serves until the context ends, and then gives everything back.
func (s *echoService) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.announce()
	errs := make(chan error, len(s.listeners))
	for _, ln := range s.listeners {
		go func() {
			errs <- s.acceptAll(ctx, ln)
			cancel()
		}()
	}
	var err error
	for range s.listeners {
		err = errors.Join(err, <-errs)
	}
	s.sessions.Wait()
	for _, ln := range s.listeners {
		err = errors.Join(err, ln.Close())
	}
	s.print("stopped, %d clients served", s.clients.Load())
	return err
}

func (s *echoService) announce() {
	text := s.listeners[0].Addr().String()
	for _, ln := range s.listeners[1:] {
		text += " and " + ln.Addr().String()
	}
	fmt.Fprintf(s.log, "listening on %s for rdma-ping and rping, up to %d clients, messages up to %s\n",
		text, s.opts.maxClients, formatSize(s.opts.maxSize))
}

// acceptAll starts a session for each request. A request is answered in its own goroutine,
// so that a slow client holds up no other.
func (s *echoService) acceptAll(ctx context.Context, ln *rdmacm.Listener) error {
	for {
		req, err := ln.Next(ctx)
		switch {
		case err != nil && (ctx.Err() != nil || errors.Is(err, net.ErrClosed)):
			return nil
		case err != nil:
			return err
		}
		select {
		case s.places <- struct{}{}:
			s.sessions.Go(func() {
				defer func() { <-s.places }()
				s.handle(ctx, req)
			})
		default:
			s.refuse(req, &errRefused{reasonBusy, fmt.Sprintf("%d clients are being served", s.opts.maxClients)})
		}
	}
}

// handle is the life of one client. What goes wrong concerns this client only.
func (s *echoService) handle(ctx context.Context, req *rdmacm.Request) {
	ss := &session{opts: s.opts, req: req}
	peer := req.RemoteAddr()
	err := ss.greet()
	if err == nil {
		err = ss.admit()
	}
	if err != nil {
		err = errors.Join(err, ss.link.free())
		s.refuse(req, err)
		return
	}
	if err = ss.accept(ctx); err == nil {
		s.clients.Add(1)
		s.print("%v connected: %s", peer, ss.protocol())
		s.attend(ctx, ss, peer)
	} else if ctx.Err() == nil {
		s.print("%v did not connect: %s", peer, oneLine(firstError(err).Error()))
	}
	if err := ss.link.close(); err != nil {
		s.print("%v: %s", peer, oneLine(err.Error()))
	}
}

// attend serves a connected client and notes how it ended.
func (s *echoService) attend(ctx context.Context, ss *session, peer netip.AddrPort) {
	begin := time.Now()
	summary, err := ss.serve(ctx)
	took := time.Since(begin).Round(time.Millisecond)
	switch {
	case errors.Is(err, errTimeout):
		s.print("%v dropped, silent for %v: %s in %v", peer, s.opts.idle, summary, took)
	case err != nil:
		s.print("%v dropped: %s: %s in %v", peer, oneLine(err.Error()), summary, took)
	default:
		s.print("%v left: %s in %v", peer, summary, took)
	}
}

// refuse rejects a request, with the reason in the private data. A client that has gone
// meanwhile is none of our concern.
func (s *echoService) refuse(req *rdmacm.Request, err error) {
	h := hello{kind: kindReject, size: uint32(s.opts.maxSize)}
	if refused := (*errRefused)(nil); errors.As(err, &refused) {
		h.reason = refused.reason
	}
	peer := req.RemoteAddr()
	if rejectErr := req.Reject(h.marshal()); rejectErr != nil {
		err = errors.Join(err, rejectErr)
	}
	s.print("%v %s", peer, oneLine(err.Error()))
}

func (s *echoService) print(format string, args ...any) {
	if s.opts.quiet {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.log, format+"\n", args...)
}

package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pureverbs/rdma/rdmacm"
)

// perfService is a running perf serve.
type perfService struct {
	opts    *perfServeOptions
	app     *app
	places  chan struct{} // one token for each client
	clients sync.WaitGroup
	served  atomic.Uint64

	mu       sync.Mutex
	sessions map[uint64]*perfSession // by token
	log      io.Writer
}

func (s *perfService) print(format string, args ...any) {
	if s.opts.quiet {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.log, format+"\n", args...)
}

// announce is one line that scripts wait for.
func (s *perfService) announce(where string) {
	what := fmt.Sprintf("rdma-ping perf, up to %d clients, messages up to %s", s.opts.maxClients, formatSize(s.opts.maxSize))
	if s.opts.perftest.on {
		what = s.opts.perftest.what()
	}
	fmt.Fprintf(s.log, "listening on %s for %s\n", where, what)
}

// serveCM serves clients of rdma_cm until the context ends.
func (s *perfService) serveCM(ctx context.Context, addrs []netip.AddrPort) error {
	listeners, err := perfListen(ctx, addrs, s.app.cmOptions())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	where := listeners[0].Addr().String()
	for _, ln := range listeners[1:] {
		where += " and " + ln.Addr().String()
	}
	s.announce(where)
	errs := make(chan error, len(listeners))
	for _, ln := range listeners {
		go func() {
			errs <- s.acceptAll(ctx, ln)
			cancel()
		}()
	}
	for range listeners {
		err = errors.Join(err, <-errs)
	}
	s.clients.Wait()
	for _, ln := range listeners {
		err = errors.Join(err, ln.Close())
	}
	s.print("stopped, %d clients served", s.served.Load())
	return err
}

// perfListen opens a listener on each address that can be had; one is enough.
func perfListen(ctx context.Context, addrs []netip.AddrPort, opts []rdmacm.Option) (listeners []*rdmacm.Listener, last error) {
	for _, addr := range addrs {
		ln, err := rdmacm.Listen(ctx, addr.String(), &rdmacm.Options{System: opts})
		if err != nil {
			last = err
			continue
		}
		listeners = append(listeners, ln)
	}
	if len(listeners) > 0 {
		last = nil
	}
	return listeners, last
}

func (s *perfService) acceptAll(ctx context.Context, ln *rdmacm.Listener) error {
	for {
		req, err := ln.Next(ctx)
		switch {
		case err != nil && (ctx.Err() != nil || errors.Is(err, net.ErrClosed)):
			return nil
		case err != nil:
			return err
		case s.opts.perftest.on:
			s.perftest(ctx, ln, req)
		default:
			s.dispatch(ctx, req)
		}
	}
}

// dispatch looks at the private data of a request: it is a new client, or a queue pair of
// one that is being served.
func (s *perfService) dispatch(ctx context.Context, req *rdmacm.Request) {
	hello, err := parsePerf[perfHelloBody](req.PrivateData(), perfKindHello)
	switch {
	case err != nil:
		s.reject(req, strangers(req.PrivateData(), err))
	case hello.Token != 0:
		if !s.deliver(hello.Token, req) {
			s.reject(req, &perfRefusal{reason: perfProtocol, why: "a queue pair that belongs to no client"})
		}
	default:
		if !s.enter(func() { s.handleCM(ctx, req) }) {
			s.reject(req, s.busy())
		}
	}
}

// deliver gives a request to the session that it is for, which has not left yet.
func (s *perfService) deliver(token uint64, req *rdmacm.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner := s.sessions[token]; owner != nil {
		select {
		case owner.requests <- req:
			return true
		default:
		}
	}
	return false
}

// strangers says who does not speak our protocol.
func strangers(private []byte, err error) error {
	if old := (*perfVersionError)(nil); errors.As(err, &old) {
		return &perfRefusal{reason: perfOld, why: err.Error()}
	}
	if _, notPing := parseHello(private); notPing == nil {
		return &perfRefusal{reason: perfProtocol, why: "it pings: 'rdma-ping serve' answers that"}
	}
	if isRping(private) {
		return &perfRefusal{reason: perfProtocol, why: "it says nothing: a program of perftest with -R? " + perftestHint}
	}
	return &perfRefusal{reason: perfProtocol, why: err.Error()}
}

func (s *perfService) busy() *perfRefusal {
	return &perfRefusal{reason: perfBusy, why: fmt.Sprintf("%d clients are being served", s.opts.maxClients)}
}

// enter runs serve in a goroutine if there is a place.
func (s *perfService) enter(serve func()) bool {
	select {
	case s.places <- struct{}{}:
	default:
		return false
	}
	s.clients.Go(func() {
		defer func() { <-s.places }()
		serve()
	})
	return true
}

// reject refuses a request. A client that has gone meanwhile is none of our concern.
func (s *perfService) reject(req *rdmacm.Request, err error) {
	refusal := &perfRefusal{reason: perfProtocol}
	errors.As(err, &refusal)
	peer := req.RemoteAddr()
	if rejectErr := req.Reject(perfHello(perfHelloBody{Reason: refusal.reason, Limit: refusal.limit})); rejectErr != nil {
		err = errors.Join(err, rejectErr)
	}
	s.print("%v %s", peer, oneLine(err.Error()))
}

// handleCM is the life of one client of rdma_cm.
func (s *perfService) handleCM(ctx context.Context, req *rdmacm.Request) {
	dev, err := req.Context()
	if err != nil {
		s.reject(req, &perfRefusal{reason: perfDevice, why: oneLine(err.Error())})
		return
	}
	peer := req.RemoteAddr()
	control := new(cmControl)
	wait, cancel := context.WithTimeout(ctx, acceptTimeout)
	_, err = req.Accept(wait, &rdmacm.Options{
		QP: perfControlCaps(), Prepare: control.prepare,
		ConnParam: rdmacm.ConnParam{PrivateData: perfHello(perfHelloBody{}), RetryCount: 7, RNRRetryCount: 7},
	})
	cancel()
	if err != nil {
		if ctx.Err() == nil {
			s.print("%v did not connect: %s", peer, oneLine(firstError(err).Error()))
		}
		return
	}
	s.attend(ctx, peer.String(), &perfSession{dev: dev, gidIndex: -1}, control)
}

// attend serves a client that is connected, and notes how that ended.
func (s *perfService) attend(ctx context.Context, peer string, ss *perfSession, control perfControl) {
	ss.opts, ss.serving, ss.waiting, ss.timeout = s.opts, true, s.opts.waiting, perfPatience
	ss.token = perfToken()
	ss.requests = make(chan *rdmacm.Request, s.opts.maxQPs)
	s.mu.Lock()
	s.sessions[ss.token] = ss
	s.mu.Unlock()
	begin := time.Now()
	err := ss.run(ctx, control)
	s.leave(ss)
	took := time.Since(begin).Round(time.Millisecond)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errTimeout):
		s.print("%v dropped, silent for too long: %s in %v", peer, ss.summary(), took)
	case errors.Is(err, errPerfest):
		s.print("%v dropped: %v", peer, perftestTCP)
	case err != nil:
		s.print("%v dropped: %s: %s in %v", peer, oneLine(err.Error()), ss.summary(), took)
	default:
		s.served.Add(1)
		s.print("%v left: %v %v over %s, %s in %v", peer, ss.plan.mode, ss.plan.op, ss.plan.transport, ss.summary(), took)
	}
}

// leave forgets a session. Requests that nobody took are rejected.
func (s *perfService) leave(ss *perfSession) {
	s.mu.Lock()
	delete(s.sessions, ss.token)
	s.mu.Unlock()
	for {
		select {
		case req := <-ss.requests:
			s.reject(req, &perfRefusal{reason: perfProtocol, why: "a queue pair of a client that has left"})
		default:
			return
		}
	}
}

// perfToken is what a stranger cannot guess, and never 0.
func perfToken() uint64 {
	var b [8]byte
	rand.Read(b[:]) //nolint:errcheck // never fails
	return binary.BigEndian.Uint64(b[:]) | 1
}

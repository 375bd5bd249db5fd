package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pureverbs/rdma/rdmacm"
)

// acceptTimeout is how long a client may take between asking for a connection and
// confirming it.
const acceptTimeout = 10 * time.Second

// server is one side of a session, in either protocol.
type server interface {
	// serve answers until something ends the session, and says what.
	serve() error
	// summary says what was done.
	summary() string
}

// session is one client of rdma-ping serve.
type session struct {
	opts   *serveOptions
	req    *rdmacm.Request
	wanted hello
	rping  bool
	reply  hello
	link   link
}

// errRefused is a request that was rejected; the text says why.
type errRefused struct {
	reason rejectReason
	why    string
}

func (e *errRefused) Error() string { return "refused: " + e.why }

// greet looks at the private data of a request, of which nothing is taken on trust.
func (s *session) greet() error {
	private := s.req.PrivateData()
	if isRping(private) {
		s.rping = true
		return nil
	}
	h, err := parseHello(private)
	switch {
	case err != nil:
		return &errRefused{reasonProtocol, err.Error()}
	case h.version != helloVersion:
		return &errRefused{reasonVersion, fmt.Sprintf("protocol version %d, this is %d", h.version, helloVersion)}
	case h.kind != kindRequest || h.window == 0:
		return &errRefused{reasonProtocol, "hello is no request"}
	case int64(h.size) > int64(s.opts.maxSize):
		return &errRefused{reasonTooLarge, fmt.Sprintf("wants messages of %d bytes, --max-size is %d", h.size, s.opts.maxSize)}
	}
	s.wanted = h
	s.reply = hello{
		kind: kindAccept, size: h.size, window: uint16(min(int(h.window), windowFor(int(h.size)))),
		idle: uint32(s.opts.idle.Milliseconds()),
	}
	return nil
}

// admit registers what the client's messages need, in a protection domain of its own. It
// comes before accepting, so that a client whose demands cannot be met is told why.
func (s *session) admit() error {
	ctx, err := s.req.Context()
	if err != nil {
		return &errRefused{reasonDevice, oneLine(err.Error())}
	}
	pd, err := ctx.AllocPD()
	if err == nil {
		s.link.ownPD = true
		err = s.link.allocate(pd, s.slotCount(), s.frame())
	}
	if err != nil {
		return &errRefused{reasonMemory, oneLine(err.Error())}
	}
	return nil
}

// accept makes the connection, with its receives in place before the client can send.
func (s *session) accept(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, acceptTimeout)
	defer cancel()
	var private []byte
	if !s.rping {
		private = s.reply.marshal()
	}
	_, err := s.req.Accept(ctx, &rdmacm.Options{
		PD: s.link.pd, QP: queueSizes(), Blocking: s.opts.block,
		Prepare: func(c *rdmacm.Conn) error { return s.link.attach(c, 0, s.slotCount(), s.opts.poll) },
		ConnParam: rdmacm.ConnParam{
			PrivateData: private, ResponderResources: rdmacm.None, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7,
		},
	})
	return err
}

// slotCount and frame are what a client makes the server pin.
func (s *session) slotCount() int {
	if s.rping {
		return 2
	}
	return int(s.reply.window) + 1
}

func (s *session) frame() int {
	if s.rping {
		return rpingInfoLen
	}
	return headerLen + int(s.reply.size)
}

// serve answers the client until the session ends. The error is nil if that is in order:
// the client left, or the server was told to stop.
func (s *session) serve(ctx context.Context) (summary string, err error) {
	ctx, cancel := follow(ctx, s.link.conn)
	defer cancel()
	var srv server
	if s.rping {
		srv = newRpingServer(ctx, &s.link, min(s.opts.maxSize, rpingMax), s.opts.idle)
	} else {
		srv = newEchoServer(ctx, &s.link, int(s.reply.size), s.slotCount(), s.opts.idle)
	}
	err = srv.serve()
	if errors.Is(err, errPeerGone) || errors.Is(err, context.Canceled) {
		err = nil
	}
	return srv.summary(), err
}

// protocol names what the client speaks, for the log.
func (s *session) protocol() string {
	if s.rping {
		return "rping"
	}
	return "rdma-ping, " + formatSize(int(s.reply.size))
}

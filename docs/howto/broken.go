package howto

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// Caller sends requests to an echo server over a connection that it makes anew when it breaks.
type Caller struct {
	Addr    string
	System  []rdmacm.Option // for tests; leave it empty
	Dials   int             // how often it has connected
	conn    *rdmacm.Conn
	request *uverbs.MR
	answer  *uverbs.MR
}

// Call sends a request and returns the answer. What breaks is tried again until ctx ends, so a
// request may reach the server twice: it must be one that does no harm then.
func (c *Caller) Call(ctx context.Context, text string) (string, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		answer, err := c.try(ctx, text)
		if err == nil || !worthAnother(ctx, err) {
			return answer, err
		}
		if err := c.Close(); err != nil {
			return "", err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return "", errors.Join(ctx.Err(), err)
		}
	}
}

// worthAnother tells whether a new connection may help: it does not where the request itself
// was at fault, or nobody waits any more.
func worthAnother(ctx context.Context, err error) bool {
	var failed *uverbs.WCError
	switch {
	case ctx.Err() != nil:
		return false
	case errors.As(err, &failed):
		switch failed.Status {
		case uverbs.WCFlushError, uverbs.WCRetryExceeded, uverbs.WCRNRRetryExceeded:
			return true
		}
		return false
	case errors.Is(err, uverbs.ErrInvalid), errors.Is(err, uverbs.ErrNotSupported):
		return false
	}
	return true
}

func (c *Caller) try(ctx context.Context, text string) (string, error) {
	if c.conn == nil {
		conn, err := rdmacm.Dial(ctx, c.Addr, &rdmacm.Options{System: c.System, SignalAll: true, Prepare: c.prepare})
		if err != nil {
			return "", err
		}
		c.conn = conn
		c.Dials++
	}
	if len(text) > slotSize {
		return "", fmt.Errorf("%w: a request of %d bytes", uverbs.ErrInvalid, len(text))
	}
	if _, err := c.conn.QP().PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{c.answer.SGE(0, slotSize)}}}); err != nil {
		return "", err
	}
	n := copy(c.request.Bytes(), text)
	if _, err := c.conn.QP().PostSend([]uverbs.SendWR{{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{c.request.SGE(0, n)}}}); err != nil {
		return "", err
	}
	if _, err := completion(ctx, c.conn.SendCQ()); err != nil {
		return "", err
	}
	// An answer that never comes is no failure to the device: the end of the connection flushes
	// the receive, and the context is for a server that is there and says nothing.
	wc, err := completion(ctx, c.conn.RecvCQ())
	if err != nil {
		return "", err
	}
	return string(c.answer.Bytes()[:wc.ByteLen]), nil
}

// prepare makes the memory of a new connection. The old one's is closed with it.
func (c *Caller) prepare(conn *rdmacm.Conn) (err error) {
	if c.request, err = conn.AllocMR(slotSize, 0); err != nil {
		return err
	}
	c.answer, err = conn.AllocMR(slotSize, uverbs.AccessLocalWrite)
	return err
}

// Close ends the connection, if there is one.
func (c *Caller) Close() error {
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.conn = nil
	return err
}

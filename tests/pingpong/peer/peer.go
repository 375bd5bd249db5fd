// Package peer holds what programs share that play the other end of a C program: they find a
// device by name, meet over TCP, and wait for completions asleep or awake.
package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// Open opens the device called name, or the first one if name is "".
func Open(name string) (*uverbs.Context, error) {
	devs, err := uverbs.Devices()
	if err != nil {
		return nil, err
	}
	for _, d := range devs {
		if name == "" || d.Name() == name {
			return d.Open()
		}
	}
	return nil, fmt.Errorf("no device %q", name)
}

// GID returns an entry of the GID table of port 1.
func GID(c *uverbs.Context, index int) (uverbs.GID, error) {
	table, err := c.GIDTable()
	if err != nil {
		return uverbs.GID{}, err
	}
	for _, entry := range table {
		if entry.Port == 1 && entry.Index == index {
			return entry.GID, nil
		}
	}
	return uverbs.GID{}, fmt.Errorf("entry %d of the GID table is empty", index)
}

// Owned are things to close together.
type Owned []io.Closer

// Own puts c among the things to close, unless making it failed, and passes both on.
func Own[T io.Closer](o *Owned, c T, err error) (T, error) {
	if err == nil {
		*o = append(*o, c)
	}
	return c, err
}

// Close closes all, the last one first.
func (o *Owned) Close() error {
	var errs []error
	for _, c := range slices.Backward(*o) {
		errs = append(errs, c.Close())
	}
	*o = nil
	return errors.Join(errs...)
}

// Completions waits until there are completions: asleep on an event, or polling.
func Completions(ctx context.Context, cq *uverbs.CQ, wcs []uverbs.WC, events bool) (int, error) {
	if events {
		return cq.Wait(ctx, wcs)
	}
	for {
		for range 1024 {
			if n, err := cq.Poll(wcs); n > 0 || err != nil {
				return n, err
			}
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
}

// Accept waits for one TCP connection. The end of ctx ends the connection too.
func Accept(ctx context.Context, addr string) (net.Conn, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	c, err := l.Accept()
	return bound(ctx, c, err)
}

// Dial connects over TCP. It tries for a while: the server may not be up yet. The end of ctx
// ends the connection too.
func Dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	for try := 1; ; try++ {
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil || try == 50 || ctx.Err() != nil {
			return bound(ctx, c, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

type conn struct {
	*net.TCPConn
	ctx  context.Context
	stop func() bool
}

func bound(ctx context.Context, c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	return &conn{c.(*net.TCPConn), ctx, context.AfterFunc(ctx, func() { c.Close() })}, nil
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	return n, c.why(err)
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	return n, c.why(err)
}

// why tells the end of the context from that of the connection.
func (c *conn) why(err error) error {
	if err != nil && c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	return err
}

func (c *conn) Close() error {
	c.stop()
	return c.TCPConn.Close()
}

package flows

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// receiver is the server's end of the transfer of a file.
type receiver struct{ pieces }

// ReceiveFile takes one file into a directory and returns its name.
func ReceiveFile(ctx context.Context, l *rdmacm.Listener, dir *os.Root) (name string, err error) {
	request, err := l.Next(ctx)
	if err != nil {
		return "", err
	}
	var r receiver
	conn, err := r.accept(ctx, request)
	if err != nil {
		return "", err
	}
	// 3 name
	b, err := r.piece(ctx)
	if err != nil {
		return "", errors.Join(err, conn.Close())
	}
	name = string(b)
	return name, errors.Join(r.file(ctx, dir, name), conn.Close())
}

// accept gives the place of the memory away in the very answer to the client: a message would
// do, too, but on iWARP the client has to send the first one.
func (r *receiver) accept(ctx context.Context, request *rdmacm.Request) (*rdmacm.Conn, error) {
	device, err := request.Context()
	if err != nil {
		return nil, errors.Join(err, request.Close())
	}
	pd, err := device.AllocPD()
	if err != nil {
		return nil, errors.Join(err, request.Close())
	}
	if r.data, err = pd.AllocMR(chunk, uverbs.AccessLocalWrite|uverbs.AccessRemoteWrite); err != nil {
		return nil, errors.Join(err, pd.Close(), request.Close())
	}
	release := func() error { return errors.Join(r.data.Close(), pd.Close()) }
	o := &rdmacm.Options{PD: pd, Prepare: func(c *rdmacm.Conn) error {
		c.Cleanup(release) // the last thing: what comes later is cleaned up before
		return r.prepare(c)
	}}
	// 2 address and key of the receiver's memory
	o.ConnParam.PrivateData = place{r.data.Addr(), r.data.RKey(), chunk}.encode()
	// 1 connection
	conn, err := request.Accept(ctx, o)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	return conn, nil
}

// file writes what comes into a file. The name comes from a peer: os.Root refuses what leads
// out of the directory.
func (r *receiver) file(ctx context.Context, dir *os.Root, name string) (err error) {
	file, err := dir.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	// 4 ready
	if err := r.say(ctx, sayReady); err != nil {
		return err
	}
	if err := r.content(ctx, file); err != nil {
		return err
	}
	// 7 done
	if err := r.say(ctx, sayDone); err != nil && !flushed(err) {
		return err // a client that leaves at once may not have acknowledged it: that is no error
	}
	// 8 end of the connection
	select {
	case <-r.conn.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *receiver) content(ctx context.Context, file io.Writer) error {
	for {
		// 5 piece
		b, err := r.piece(ctx)
		if err != nil || len(b) == 0 {
			return err
		}
		if _, err := file.Write(b); err != nil {
			return err
		}
		// 6 ready for the next one
		if err := r.say(ctx, sayReady); err != nil {
			return err
		}
	}
}

// piece waits for a piece. It is the receiver's to read until it says something.
func (r *receiver) piece(ctx context.Context) ([]byte, error) {
	n, err := r.receive(ctx)
	if err != nil {
		return nil, err
	}
	if n > chunk {
		return nil, fmt.Errorf("the sender tells of %d bytes, there is room for %d", n, chunk)
	}
	return r.data.Bytes()[:n], nil
}

func (r *receiver) say(ctx context.Context, what uint32) error { return r.post(ctx, r.number(what)) }

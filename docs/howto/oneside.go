package howto

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// place says where a region is. It travels as private data, in this order, big-endian.
type place struct {
	Addr uint64
	Len  uint32
	Key  uint32
}

const placeSize = 16

func (p place) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, p.Addr)
	b = binary.BigEndian.AppendUint32(b, p.Len)
	return binary.BigEndian.AppendUint32(b, p.Key)
}

// decodePlace believes nothing but the size: what RoCE pads is zeros, and who sends none has
// no memory.
func decodePlace(b []byte) (p place, err error) {
	if len(b) < placeSize {
		return p, fmt.Errorf("%d bytes of private data, want %d", len(b), placeSize)
	}
	p = place{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])}
	if p.Len == 0 {
		return p, errors.New("the server offers no memory")
	}
	return p, nil
}

// Offer lets clients read a table, each over a connection of its own, until ctx ends. The
// server's program takes no part in the reads.
func Offer(ctx context.Context, l *rdmacm.Listener, pd *uverbs.PD, table *uverbs.MR) error {
	o := &rdmacm.Options{PD: pd}
	o.ConnParam.PrivateData = place{table.Addr(), uint32(table.Len()), table.RKey()}.encode()
	o.ConnParam.InitiatorDepth = rdmacm.None // this side reads nothing
	var clients sync.WaitGroup
	defer clients.Wait() // they hold the domain that the caller will close
	for {
		request, err := l.Next(ctx)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		clients.Go(func() {
			conn, err := request.Accept(ctx, o)
			if err != nil {
				return // the client has gone
			}
			select {
			case <-conn.Done():
			case <-ctx.Done():
			}
			conn.Close() //nolint:errcheck // nothing can be done about it
		})
	}
}

func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Fetch reads n bytes at an offset of the server's table.
func Fetch(ctx context.Context, addr string, offset, n uint32, system ...rdmacm.Option) (data []byte, err error) {
	var mr *uverbs.MR
	conn, err := rdmacm.Dial(ctx, addr, &rdmacm.Options{System: system, SignalAll: true, Prepare: func(c *rdmacm.Conn) (err error) {
		// Remote write is for iWARP alone, where what is read comes as a write of the peer.
		mr, err = c.AllocMR(int(n), uverbs.AccessLocalWrite|uverbs.AccessRemoteWrite)
		return err
	}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	table, err := decodePlace(conn.PrivateData())
	if err != nil {
		return nil, err
	}
	if offset > table.Len || n > table.Len-offset {
		return nil, fmt.Errorf("bytes %d to %d of a table of %d", offset, uint64(offset)+uint64(n), table.Len)
	}
	read := uverbs.SendWR{
		Opcode: uverbs.OpRDMARead, SGL: []uverbs.SGE{mr.SGE(0, int(n))}, RemoteAddr: table.Addr + uint64(offset), RKey: table.Key,
	}
	if _, err := conn.QP().PostSend([]uverbs.SendWR{read}); err != nil {
		return nil, err
	}
	if _, err := completion(ctx, conn.SendCQ()); err != nil {
		return nil, err
	}
	return append([]byte(nil), mr.Bytes()...), nil
}

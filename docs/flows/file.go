package flows

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// chunk is how much of a file goes in one piece.
const chunk = 64 << 10

// What the receiver of a file says.
const (
	sayReady = 1 // for the next piece
	sayDone  = 2
)

// numberSize is that of a number which a device without immediate data sends as a message.
const numberSize = 4

// pieces is one end of the transfer of a file.
type pieces struct {
	conn *rdmacm.Conn
	data *uverbs.MR // the receiver's is what the sender writes into
	note *uverbs.MR // a number to receive, then one to send
}

func (p *pieces) prepare(c *rdmacm.Conn) (err error) {
	p.conn = c
	if p.note, err = c.AllocMR(2*numberSize, uverbs.AccessLocalWrite); err != nil {
		return err
	}
	return p.postReceive()
}

func (p *pieces) postReceive() error {
	_, err := p.conn.QP().PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{p.note.SGE(0, numberSize)}}})
	return err
}

// number makes the work request that sends a number.
func (p *pieces) number(n uint32) uverbs.SendWR {
	binary.BigEndian.PutUint32(p.note.Bytes()[numberSize:], n)
	return uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{p.note.SGE(numberSize, numberSize)}}
}

// receive waits for a number: the immediate data of a write, or a message. The next receive
// is posted before anybody can answer.
func (p *pieces) receive(ctx context.Context) (uint32, error) {
	wc, err := completion(ctx, p.conn.RecvCQ())
	if err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(p.note.Bytes())
	switch {
	case wc.HasImm():
		n = wc.Imm
	case wc.ByteLen != numberSize:
		return 0, fmt.Errorf("the peer sent %d bytes, want %d", wc.ByteLen, numberSize)
	}
	return n, p.postReceive()
}

// post posts work requests, of which the last one is waited for.
func (p *pieces) post(ctx context.Context, wrs ...uverbs.SendWR) error {
	wrs[len(wrs)-1].Flags = uverbs.SendSignaled
	if _, err := p.conn.QP().PostSend(wrs); err != nil {
		return err
	}
	_, err := completion(ctx, p.conn.SendCQ())
	return err
}

// hear waits for what the receiver has to say.
func (p *pieces) hear(ctx context.Context, want uint32) error {
	got, err := p.receive(ctx)
	if err == nil && got != want {
		err = fmt.Errorf("the receiver said %d, want %d", got, want)
	}
	return err
}

// place is where the receiver's memory is: 16 bytes of private data.
type place struct {
	addr uint64
	key  uint32
	size uint32
}

func (p place) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, p.addr)
	b = binary.BigEndian.AppendUint32(b, p.key)
	return binary.BigEndian.AppendUint32(b, p.size)
}

// parsePlace reads what may be longer: InfiniBand and RoCE pad private data.
func parsePlace(b []byte) (p place, err error) {
	if len(b) < 16 {
		return p, errors.New("the receiver does not say where its memory is")
	}
	p = place{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])}
	if p.size != chunk {
		return p, fmt.Errorf("the receiver has room for %d bytes, want %d", p.size, chunk)
	}
	return p, nil
}

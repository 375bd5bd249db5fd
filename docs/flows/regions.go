package flows

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// regionSize is the size of the memory that each side opens to the other.
const regionSize = 1024

// regions is one end of the exchange. Its messages are small: what kind, and for the first
// kind where the region is.
type regions struct {
	conn  *rdmacm.Conn
	own   *uverbs.MR // what the peer may read
	open  *uverbs.MR // what the peer may write
	note  *uverbs.MR // a message to receive, then one to send
	peer  regionPair
	first bool // this side connected
}

// regionPair is where the regions of a side are, as the other side has to know.
type regionPair struct {
	ReadAddr, WriteAddr uint64
	ReadKey, WriteKey   uint32
}

const (
	kindRegions = 1
	kindDone    = 2
	noteSize    = 1 + 24
)

// options returns the options of Dial or Accept for this end.
func (r *regions) options(text string, system []rdmacm.Option) *rdmacm.Options {
	return &rdmacm.Options{SignalAll: true, System: system, Prepare: func(c *rdmacm.Conn) error {
		// 1 memory regions
		if err := r.register(c); err != nil {
			return err
		}
		copy(r.own.Bytes(), text)
		return r.postReceive()
	}}
}

func (r *regions) register(c *rdmacm.Conn) (err error) {
	r.conn = c
	if r.own, err = c.AllocMR(regionSize, uverbs.AccessLocalWrite|uverbs.AccessRemoteRead); err != nil {
		return err
	}
	// What a READ brings is on iWARP written by the peer.
	if r.open, err = c.AllocMR(2*regionSize, uverbs.AccessLocalWrite|uverbs.AccessRemoteWrite); err != nil {
		return err
	}
	r.note, err = c.AllocMR(2*noteSize, uverbs.AccessLocalWrite)
	return err
}

// RegionsServer and RegionsClient open memory to each other. Each then writes a text of its own
// into the other's memory and reads one from there. They return what the other has written
// here, and what was read there.
func RegionsServer(ctx context.Context, l *rdmacm.Listener, text string) (written, read string, err error) {
	request, err := l.Next(ctx)
	if err != nil {
		return "", "", err
	}
	var r regions
	// 2 connection
	if _, err := request.Accept(ctx, r.options(text, nil)); err != nil {
		return "", "", err
	}
	return r.exchange(ctx, text)
}

// RegionsClient is the other side of RegionsServer.
func RegionsClient(ctx context.Context, addr, text string, system ...rdmacm.Option) (written, read string, err error) {
	r := regions{first: true}
	if _, err := rdmacm.Dial(ctx, addr, r.options(text, system)); err != nil {
		return "", "", err
	}
	return r.exchange(ctx, text)
}

func (r *regions) exchange(ctx context.Context, text string) (written, read string, err error) {
	defer func() {
		// 7 disconnect
		err = errors.Join(err, r.conn.Close())
	}()
	// 3 addresses and keys
	if err := r.introduce(ctx); err != nil {
		return "", "", err
	}
	// 4 write
	write := uverbs.SendWR{Opcode: uverbs.OpRDMAWrite, SGL: []uverbs.SGE{r.own.SGE(0, len(text))}}
	write.RemoteAddr, write.RKey = r.peer.WriteAddr, r.peer.WriteKey
	if err := r.operate(ctx, write); err != nil {
		return "", "", err
	}
	// 5 read
	fetch := uverbs.SendWR{Opcode: uverbs.OpRDMARead, SGL: []uverbs.SGE{r.open.SGE(regionSize, regionSize)}}
	fetch.RemoteAddr, fetch.RKey = r.peer.ReadAddr, r.peer.ReadKey
	if err := r.operate(ctx, fetch); err != nil {
		return "", "", err
	}
	// 6 done
	if err := r.part(ctx); err != nil {
		return "", "", err
	}
	memory := r.open.Bytes()
	return text0(memory[:regionSize]), text0(memory[regionSize:]), nil
}

// text0 is the text that a region holds, up to the zeros.
func text0(b []byte) string { return string(bytes.TrimRight(b, "\x00")) }

// introduce exchanges addresses and keys. On iWARP the side that connected has to be the
// first to send, so it is on all.
func (r *regions) introduce(ctx context.Context) error {
	me := regionPair{r.own.Addr(), r.open.Addr(), r.own.RKey(), r.open.RKey()}
	note := append([]byte{kindRegions}, encodeRegions(me)...)
	if r.first {
		if err := r.send(ctx, note); err != nil {
			return err
		}
	}
	got, err := r.receive(ctx, kindRegions)
	if err != nil {
		return err
	}
	r.peer = decodeRegions(got)
	if r.first {
		return nil
	}
	return r.send(ctx, note)
}

// part ends the exchange when both sides are done: memory must not go before, as it is the
// peer's device that works on it. The side that connected leaves first; the other one does not
// wait for its last message, which a peer that leaves may not have acknowledged.
func (r *regions) part(ctx context.Context) error {
	done := make([]byte, noteSize)
	done[0] = kindDone
	if r.first {
		if err := r.send(ctx, done); err != nil {
			return err
		}
		_, err := r.receive(ctx, kindDone)
		return err
	}
	if _, err := r.receive(ctx, kindDone); err != nil {
		return err
	}
	if err := r.post(done); err != nil {
		return err
	}
	select {
	case <-r.conn.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *regions) operate(ctx context.Context, wr uverbs.SendWR) error {
	if _, err := r.conn.QP().PostSend([]uverbs.SendWR{wr}); err != nil {
		return err
	}
	_, err := completion(ctx, r.conn.SendCQ())
	return err
}

func (r *regions) send(ctx context.Context, note []byte) error {
	if err := r.post(note); err != nil {
		return err
	}
	_, err := completion(ctx, r.conn.SendCQ())
	return err
}

func (r *regions) post(note []byte) error {
	n := copy(r.note.Bytes()[noteSize:], note)
	_, err := r.conn.QP().PostSend([]uverbs.SendWR{{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{r.note.SGE(noteSize, n)}}})
	return err
}

func (r *regions) postReceive() error {
	_, err := r.conn.QP().PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{r.note.SGE(0, noteSize)}}})
	return err
}

func (r *regions) receive(ctx context.Context, kind byte) ([]byte, error) {
	wc, err := completion(ctx, r.conn.RecvCQ())
	if err != nil {
		return nil, err
	}
	got := append([]byte(nil), r.note.Bytes()[:wc.ByteLen]...)
	if len(got) != noteSize || got[0] != kind {
		return nil, fmt.Errorf("the peer sent %x, want a message of kind %d", got, kind)
	}
	return got[1:], r.postReceive()
}

func encodeRegions(p regionPair) []byte {
	b := binary.BigEndian.AppendUint64(nil, p.ReadAddr)
	b = binary.BigEndian.AppendUint64(b, p.WriteAddr)
	b = binary.BigEndian.AppendUint32(b, p.ReadKey)
	return binary.BigEndian.AppendUint32(b, p.WriteKey)
}

func decodeRegions(b []byte) (p regionPair) {
	p.ReadAddr, p.WriteAddr = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	p.ReadKey, p.WriteKey = binary.BigEndian.Uint32(b[16:]), binary.BigEndian.Uint32(b[20:])
	return p
}

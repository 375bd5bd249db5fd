package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/pureverbs/rdma/mmio"
	"github.com/pureverbs/rdma/uverbs"
)

// test is what differs between the four programs.
type test struct {
	size     int                // bytes, unless told otherwise
	access   uverbs.AccessFlags // what the peer does to the memory here
	remote   bool               // the peer's memory is named by key and address
	bothWays bool               // messages go both ways; else the server does nothing but serve
	ends     bool               // the two tell each other when they are done
	prepare  func(*end) error   // before the peer may begin
	play     func(context.Context, *end) error
	verify   func(*end) error // after all
}

var tests = map[string]*test{
	"send": {
		size: 2, bothWays: true, ends: true,
		prepare: prepareSend, play: playSend, verify: nothing,
	},
	"write": {
		size: 2, access: uverbs.AccessRemoteWrite, remote: true, bothWays: true,
		prepare: nothing, play: playWrite, verify: nothing,
	},
	"read": {
		size: 2, access: uverbs.AccessRemoteRead, remote: true, ends: true,
		prepare: nothing, play: playRead, verify: nothing,
	},
	"atomic": {
		size: 8, access: uverbs.AccessRemoteAtomic, remote: true, ends: true,
		prepare: nothing, play: playAtomic, verify: verifyAtomic,
	},
}

const (
	fetchAdd    = "FETCH_AND_ADD"
	compareSwap = "CMP_AND_SWAP"
)

func nothing(*end) error { return nil }

// seen checks data that has to be the same each time, whatever it is, and then makes sure
// that the next one shows if it does not arrive: the memory holds something else by then,
// which is never the same twice.
type seen struct {
	first []byte
	times byte
}

func (s *seen) hide(b []byte) {
	s.times++
	for i := range b {
		b[i] = s.times
	}
}

func (s *seen) check(b []byte) error {
	if s.first == nil {
		s.first = bytes.Clone(b)
	}
	if !bytes.Equal(b, s.first) {
		return fmt.Errorf("the peer's %d bytes are % x ... this time, % x ... before", len(b), b[:min(8, len(b))], s.first[:min(8, len(b))])
	}
	s.hide(b)
	return nil
}

// prepareSend posts the receives.
func prepareSend(e *end) error {
	e.seen.hide(e.theirs())
	return e.postRecvs(e.depth())
}

// playSend sends a message for each one that comes; the client begins.
func playSend(ctx context.Context, e *end) error {
	for sent, received := 0, 0; sent < e.iters || received < e.iters; {
		if received < e.iters && (sent > 0 || !e.client()) {
			if err := e.take(ctx); err != nil {
				return err
			}
			if received++; received+e.depth() <= e.iters {
				if err := e.postRecvs(1); err != nil {
					return err
				}
			}
		}
		if sent < e.iters {
			if err := e.post(ctx, uverbs.SendWR{Opcode: uverbs.OpSend}); err != nil {
				return err
			}
			sent++
		}
	}
	return nil
}

// take receives one message. The next one comes only after the answer to this one.
func (e *end) take(ctx context.Context) error {
	wc, err := e.completion(ctx, e.recvCQ)
	if err != nil {
		return err
	}
	if int(wc.ByteLen) != e.grh()+e.size {
		return fmt.Errorf("the peer sent %d bytes, want %d: both sides need the same -s", int(wc.ByteLen)-e.grh(), e.size)
	}
	return e.seen.check(e.theirs())
}

// playWrite writes into the peer's memory when the peer has written into ours; the server
// begins. The last byte of the message counts.
func playWrite(ctx context.Context, e *end) error {
	for sent, received := 0, 0; sent < e.iters || received < e.iters; {
		if received < e.iters && (sent > 0 || e.client()) {
			received++
			if err := e.awaitByte(ctx, byte(received)); err != nil {
				return err
			}
		}
		if sent < e.iters {
			sent++
			e.own()[e.size-1] = byte(sent)
			if err := e.post(ctx, uverbs.SendWR{Opcode: uverbs.OpRDMAWrite}); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitByte watches the last byte that the peer writes. Nothing but the memory tells that
// it came.
func (e *end) awaitByte(ctx context.Context, want byte) error {
	at := e.slot() + e.size - 1
	word, err := mmio.NewRegion(e.mr.Bytes(), nil).Uint32(at &^ 3)
	if err != nil {
		return err
	}
	var b [4]byte
	for ctx.Err() == nil {
		for range 1024 {
			binary.NativeEndian.PutUint32(b[:], mmio.LoadAcquire32(word))
			if b[at&3] == want {
				return nil
			}
		}
	}
	return ctx.Err()
}

// playRead reads the server's memory.
func playRead(ctx context.Context, e *end) error {
	if !e.client() {
		return nil
	}
	e.seen.hide(e.own())
	for range e.iters {
		if err := e.post(ctx, uverbs.SendWR{Opcode: uverbs.OpRDMARead}); err != nil {
			return err
		}
		if err := e.seen.check(e.own()); err != nil {
			return err
		}
	}
	return nil
}

// playAtomic counts in the server's memory, or swaps 0 for 0 there. What it holds at first
// is not known: C programs fill it with random bytes.
func playAtomic(ctx context.Context, e *end) error {
	if !e.client() {
		return nil
	}
	wr, step := uverbs.SendWR{Opcode: uverbs.OpFetchAdd, CompareAdd: 1}, uint64(1)
	if e.atomic == compareSwap {
		wr, step = uverbs.SendWR{Opcode: uverbs.OpCompareSwap}, 0
	}
	var want uint64
	for i := range e.iters {
		binary.NativeEndian.PutUint64(e.own(), ^want)
		if err := e.post(ctx, wr); err != nil {
			return err
		}
		old := binary.NativeEndian.Uint64(e.own())
		if i > 0 && old != want {
			return fmt.Errorf("operation %d found %d in the peer's memory, want %d", i, old, want)
		}
		want = old + step
	}
	return nil
}

// verifyAtomic: the client's operations were done here.
func verifyAtomic(e *end) error {
	want := uint64(0)
	if e.atomic == fetchAdd && !e.client() {
		want = uint64(e.iters)
	}
	if got := binary.NativeEndian.Uint64(e.theirs()); got != want {
		return fmt.Errorf("the peer counted to %d here, want %d", got, want)
	}
	return nil
}

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/pureverbs/rdma/mmio"
	"github.com/pureverbs/rdma/uverbs"
)

// latency measures one message after the other. A message of send or write goes to the peer
// and another comes back: the time is half of that round trip. A read or an atomic operation
// is there and back by itself, and its time is all of it.
func (l *perfLane) latency(ctx context.Context, r *perfRound, m *perfMeasure) error {
	m.times = newPerfTimes()
	g := newGuard(ctx)
	defer g.close()
	for i := uint64(1); ; i++ {
		if i == uint64(r.warmup)+1 {
			m.first = time.Now()
		}
		if l.over(r, m, i) {
			m.last = time.Now()
			return nil
		}
		if ctx.Err() != nil { // a wait need not notice: what it waits for may be there
			return context.Cause(ctx)
		}
		m.sent++
		took, err := l.once(g, r, i)
		counts := i > uint64(r.warmup)
		switch {
		case errors.Is(err, errTimeout) && !l.plan.reliable():
			if counts {
				m.lost++
			}
		case errors.Is(err, errTimeout):
			return fmt.Errorf("message %d of %s: no answer within %v", i, formatSize(r.size), l.timeout)
		case err != nil:
			return err
		case counts:
			m.times.add(took)
			m.measured++
			l.done.Add(1)
		}
	}
}

// over tells whether message i is not to be sent any more.
func (l *perfLane) over(r *perfRound, m *perfMeasure, i uint64) bool {
	if i <= uint64(r.warmup) {
		return false
	}
	if r.count > 0 {
		return i > uint64(r.warmup)+r.count
	}
	return time.Since(m.first) >= r.duration
}

// once makes message i.
func (l *perfLane) once(g *guard, r *perfRound, i uint64) (time.Duration, error) {
	ctx := g.start(l.timeout)
	defer g.stop()
	switch l.plan.op {
	case perfSend:
		took, err := l.sendOnce(ctx, r.size)
		return took / 2, err
	case perfWrite:
		took, err := l.writeOnce(ctx, r.size, byte(i), byte(i-1), byte(i))
		return took / 2, err
	}
	return l.fetchOnce(ctx, r.size, i-1)
}

// sendOnce sends a message and waits for the answer, and for the completion of the send,
// which may come later and does not count.
func (l *perfLane) sendOnce(ctx context.Context, size int) (took time.Duration, err error) {
	if !l.plan.reliable() { // what came after its time answers nothing any more
		if _, err := l.taken(l.wait.poll()); err != nil {
			return 0, err
		}
	}
	begin := time.Now()
	if err := l.post(1, size); err != nil {
		return 0, err
	}
	for answered, sent := false, false; !answered || !sent; {
		wcs, at, err := l.wait.wait(ctx)
		got, err := l.taken(wcs, err)
		if err != nil {
			return 0, err
		}
		sent = sent || got.sent > 0
		if got.received > 0 && !answered {
			answered, took = true, at.Sub(begin)
			if got.bytes != size && l.plan.reliable() {
				return 0, fmt.Errorf("answer of %d bytes to a message of %d", got.bytes, size)
			}
			l.verify(l.data(size))
		}
	}
	return took, nil
}

// perfTaken is what completions said.
type perfTaken struct {
	sent, received int
	bytes          int // of the last message
}

// taken looks at completions of single messages, and posts receives in place of used ones.
func (l *perfLane) taken(wcs []uverbs.WC, err error) (t perfTaken, _ error) {
	if err != nil {
		return t, err
	}
	for i := range wcs {
		wc := &wcs[i]
		switch {
		case wc.Status != uverbs.WCSuccess:
			return t, l.failed(wc)
		case wc.ID != perfIDRecv:
			t.sent++
			continue
		}
		l.posted--
		t.received++
		t.bytes = int(wc.ByteLen) - l.plan.grh()
	}
	if t.received > 0 {
		err = l.fill()
	}
	return t, err
}

// failed explains a completion with an error. One that was flushed says only that the
// connection is over; why, another one may say.
func (l *perfLane) failed(wc *uverbs.WC) error {
	if wc.Status == uverbs.WCFlushError {
		left, _ := l.wait.poll()
		for i := range left {
			if s := left[i].Status; s != uverbs.WCSuccess && s != uverbs.WCFlushError {
				return left[i].Err()
			}
		}
	}
	return perfFailed(wc)
}

// completed waits until the one request that is posted is done.
func (l *perfLane) completed(ctx context.Context) (time.Time, error) {
	for {
		wcs, at, err := l.wait.wait(ctx)
		if t, err := l.taken(wcs, err); err != nil || t.sent > 0 {
			return at, err
		}
	}
}

// writeOnce writes into the peer's memory and watches its own for the answer: the last byte
// of a message is its number, and nothing else tells that it came. The number there was
// before is not the answer.
func (l *perfLane) writeOnce(ctx context.Context, size int, number, was, want byte) (time.Duration, error) {
	l.out.Bytes()[size-1] = number
	begin := time.Now()
	if err := l.post(1, size); err != nil {
		return 0, err
	}
	took, err := time.Duration(0), error(nil)
	for got := was; got != want && err == nil; was = got {
		got, err = l.awaitByte(ctx, size-1, was)
		took = time.Since(begin)
	}
	if err == nil {
		l.verify(l.data(size)[:size-1])
	}
	switch {
	case err == nil:
		_, err = l.completed(ctx)
	case errors.Is(err, errTimeout) && !l.plan.reliable(): // the next write needs the memory
		free, stop := context.WithTimeout(context.WithoutCancel(ctx), l.timeout)
		defer stop()
		if _, e := l.completed(free); e != nil {
			err = e
		}
	}
	return took, err
}

// awaitByte watches a byte of the memory that the peer writes until it is not any more what
// it was.
func (l *perfLane) awaitByte(ctx context.Context, at int, was byte) (byte, error) {
	word, err := mmio.NewRegion(l.in.Bytes(), nil).Uint32(at &^ 3)
	if err != nil {
		return was, err
	}
	var b [4]byte
	for {
		for range 64 {
			binary.NativeEndian.PutUint32(b[:], mmio.LoadAcquire32(word))
			if b[at&3] != was {
				return b[at&3], nil
			}
		}
		if ctx.Err() != nil {
			return was, context.Cause(ctx)
		}
		runtime.Gosched() // see waiter.take
	}
}

// fetchOnce reads the peer's memory, or counts in it, from before on.
func (l *perfLane) fetchOnce(ctx context.Context, size int, before uint64) (time.Duration, error) {
	begin := time.Now()
	if err := l.post(1, size); err != nil {
		return 0, err
	}
	at, err := l.completed(ctx)
	if err != nil {
		return 0, err
	}
	took := at.Sub(begin)
	if l.plan.op == perfRead {
		l.verify(l.out.Bytes()[:size])
	} else if l.want != nil && binary.NativeEndian.Uint64(l.out.Bytes()) != before {
		l.corrupt = true
	}
	return took, nil
}

// answer sends back as many bytes as come, until the round is over.
func (l *perfLane) answer(ctx context.Context, r *perfRound) error {
	if l.plan.op == perfWrite {
		return l.answerWrites(ctx, r.size)
	}
	open := 0
	for {
		wcs, _, err := l.wait.wait(ctx)
		t, err := l.taken(wcs, err)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		open -= t.sent
		if t.received > 0 && l.plan.reliable() && t.bytes != r.size {
			return fmt.Errorf("message of %d bytes, agreed were %d", t.bytes, r.size)
		}
		for range t.received {
			l.verify(l.data(r.size))
			if open++; open > l.plan.sends() {
				return errors.New("the peer sends more than it reads answers")
			}
			if err := l.post(1, r.size); err != nil {
				return err
			}
			l.came.Add(1)
		}
	}
}

// answerWrites writes back the number of each write that comes.
func (l *perfLane) answerWrites(ctx context.Context, size int) error {
	for was := byte(0); ; {
		got, err := l.awaitByte(ctx, size-1, was)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		l.verify(l.data(size)[:size-1])
		was = got
		l.out.Bytes()[size-1] = got
		if err := l.post(1, size); err != nil {
			return err
		}
		if _, err := l.completed(ctx); err != nil {
			return err
		}
		l.came.Add(1)
	}
}

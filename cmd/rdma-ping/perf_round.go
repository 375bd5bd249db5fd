package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// perfMeasure is what one side of a queue pair found in a round.
type perfMeasure struct {
	sent        uint64 // messages, those to warm up among them
	measured    uint64 // messages that count
	lost        uint64
	first, last time.Time // when those that count began and ended
	times       *perfTimes
}

// perfTimes sums up how long messages took. Percentiles are good to three digits, whatever
// the number of messages, in bounded memory; the rest is exact.
type perfTimes struct {
	n        uint64
	sum      float64 // nanoseconds
	min, max time.Duration
	hist     *hdrhistogram.Histogram
}

func newPerfTimes() *perfTimes { return &perfTimes{hist: hdrhistogram.New(1, int64(longest), 3)} }

func (t *perfTimes) add(d time.Duration) {
	if t.n == 0 || d < t.min {
		t.min = d
	}
	t.n++
	t.sum += float64(d)
	t.max = max(t.max, d)
	t.hist.RecordValue(int64(min(max(d, 0), longest)))
}

func (t *perfTimes) merge(o *perfTimes) {
	if o == nil || o.n == 0 {
		return
	}
	if t.n == 0 || o.min < t.min {
		t.min = o.min
	}
	t.n += o.n
	t.sum += o.sum
	t.max = max(t.max, o.max)
	t.hist.Merge(o.hist)
}

func (t *perfTimes) mean() time.Duration {
	if t.n == 0 {
		return 0
	}
	return time.Duration(t.sum / float64(t.n))
}

// percentile is never outside of what was measured, as the histogram's own may be.
func (t *perfTimes) percentile(p float64) time.Duration {
	return min(max(time.Duration(t.hist.ValueAtQuantile(p)), t.min), t.max)
}

// errRoundOver ends the waits of those who answer when the round is over.
var errRoundOver = errors.New("the round is over")

// prepare fills the memory for a round, and posts receives.
func (l *perfLane) prepare(r *perfRound) error {
	l.done.Store(0)
	l.came.Store(0)
	l.gone.Store(0)
	l.corrupt, l.want = false, nil
	out, in := l.out.Bytes()[:r.size], l.data(r.size)
	fillPattern(out, uint64(r.size))
	clear(in)
	switch l.plan.op {
	case perfRead:
		fillPattern(in, uint64(r.size))
		clear(out)
	case perfAtomic:
		clear(out)
	}
	if l.plan.verify {
		l.want = make([]byte, r.size)
		fillPattern(l.want, uint64(r.size))
	}
	if l.plan.op == perfSend {
		return l.fill()
	}
	return nil
}

// verify compares data with what they have to be, if that is wanted, and makes sure that the
// next ones show if they do not come.
func (l *perfLane) verify(got []byte) {
	if l.want == nil {
		return
	}
	if !bytes.Equal(got, l.want[:len(got)]) {
		l.corrupt = true
	}
	clear(got)
}

// settle looks at what a round of bandwidth has left in memory. came is the number of
// messages of the peer.
func (l *perfLane) settle(r *perfRound, m *perfMeasure, came uint64) {
	if l.plan.mode != perfBW || l.want == nil {
		return
	}
	switch l.plan.op {
	case perfSend, perfWrite:
		if came > 0 {
			l.verify(l.data(r.size))
		}
	case perfRead:
		if m.sent > 0 {
			l.verify(l.out.Bytes()[:r.size])
		}
	case perfAtomic:
		// The last answer need not be the largest: answers share their memory, but come in order.
		if m.sent > 0 && binary.NativeEndian.Uint64(l.out.Bytes()) != m.sent-1 {
			l.corrupt = true
		}
	}
}

// work is what the lane does in a round: it measures, answers, or both. allSent is called
// once this side has nothing more to send.
func (l *perfLane) work(ctx context.Context, r *perfRound, allSent func()) (*perfMeasure, error) {
	m := &perfMeasure{}
	var err error
	sent := func() {
		l.gone.Store(m.sent)
		allSent()
	}
	switch {
	case l.plan.mode == perfBW:
		s := &perfStream{perfLane: l, r: r, m: m, sender: !l.serving || l.plan.bidirectional, sent: sent}
		err = s.run(ctx)
	case l.serving:
		sent()
		err = l.answer(ctx, r)
	default:
		err = l.latency(ctx, r, m)
		sent()
	}
	if errors.Is(err, errRoundOver) {
		err = nil
	}
	return m, err
}

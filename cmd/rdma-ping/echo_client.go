package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// maxWindow is how many requests may be without an answer. More than one only is when
// answers come after their time: the next request need not wait for them.
const maxWindow = 4

// windowFor keeps small messages within a page and large ones from pinning much memory.
func windowFor(size int) int {
	if headerLen+size <= 512 {
		return maxWindow
	}
	return 2
}

// lostError is a request that stays without an answer; pinging goes on.
type lostError struct{ why string }

func (e *lostError) Error() string { return e.why }

// corruptError is an answer that is not what was sent; pinging goes on.
type corruptError struct{ why string }

func (e *corruptError) Error() string { return e.why }

// pinger makes one round trip at a time, in one of the two protocols.
type pinger interface {
	// ping sends request seq and returns the time until its answer. A *lostError or a
	// *corruptError is about this request, any other error about the connection.
	ping(seq uint64) (time.Duration, error)
}

// request is what occupies a slot for sending.
type request struct {
	seq      uint64
	sending  bool // the send is not complete: the device may still read the slot
	awaiting bool // no answer yet
}

// echoClient is the client of our own protocol. Slots 0 to window-1 hold requests, those
// from first on receive answers.
type echoClient struct {
	*link
	guard    *guard
	timeout  time.Duration
	size     int
	window   int
	requests []request
}

func newEchoClient(ctx context.Context, l *link, size, window int, timeout time.Duration) *echoClient {
	return &echoClient{
		link: l, guard: newGuard(ctx), timeout: timeout, size: size, window: window,
		requests: make([]request, window),
	}
}

func (c *echoClient) ping(seq uint64) (time.Duration, error) {
	ctx := c.guard.start(c.timeout)
	defer c.guard.stop()
	slot := int(seq % uint64(c.window))
	if err := c.claim(ctx, slot); err != nil {
		return 0, lost(err, "earlier requests are still without an answer")
	}
	n := headerLen + c.size
	fillMessage(c.slots.bytes(slot, n), seq)
	c.requests[slot] = request{seq: seq, sending: true, awaiting: true}
	begin := time.Now()
	if err := c.postSend(slot, n); err != nil {
		return 0, err
	}
	for {
		at, answered, err := c.receive(ctx, seq)
		if err != nil {
			return 0, lost(err, fmt.Sprintf("waited %v", c.timeout))
		}
		if answered {
			return at.Sub(begin), nil
		}
	}
}

// lost makes a lostError of a wait that took too long and keeps other errors.
func lost(err error, why string) error {
	if errors.Is(err, errTimeout) {
		return &lostError{why}
	}
	return err
}

// claim waits until a slot is free: its request has an answer, and its send is complete.
// The two come in any order.
func (c *echoClient) claim(ctx context.Context, slot int) error {
	r := &c.requests[slot]
	for r.awaiting {
		if _, _, err := c.receive(ctx, 0); err != nil && !errors.As(err, new(*corruptError)) {
			return err
		}
	}
	if err := c.reap(c.send.poll()); err != nil {
		return err
	}
	for r.sending {
		wcs, _, err := c.send.wait(ctx)
		if err := c.reap(wcs, err); err != nil {
			return err
		}
	}
	return nil
}

// reap notes completed sends.
func (c *echoClient) reap(wcs []uverbs.WC, err error) error {
	if err != nil {
		return err
	}
	for i := range wcs {
		if wcs[i].Status != uverbs.WCSuccess {
			return c.failed(&wcs[i])
		}
		if id := wcs[i].ID; id < uint64(len(c.requests)) {
			c.requests[id].sending = false
		}
	}
	return nil
}

// receive takes what has come and tells whether the answer to seq was in it, and when it
// was seen. The time is that of the receive completion: the send's may come later.
func (c *echoClient) receive(ctx context.Context, seq uint64) (at time.Time, answered bool, err error) {
	if c.ended != nil {
		return at, false, c.ended
	}
	wcs, at, err := c.recv.wait(ctx)
	if err != nil {
		return at, false, err
	}
	var wrong error
	for i := range wcs {
		got, err := c.take(&wcs[i])
		switch {
		case err == nil:
			answered = answered || got == seq
		case errors.As(err, new(*corruptError)):
			wrong = err
		case c.ended == nil:
			c.ended = err
		}
	}
	switch {
	case answered:
		return at, true, nil
	case wrong != nil:
		return at, false, wrong
	}
	return at, false, c.ended
}

// take checks one answer and makes its slot ready again. Answers to other requests than the
// present one were counted as lost in their time, and stay so.
func (c *echoClient) take(wc *uverbs.WC) (uint64, error) {
	switch {
	case wc.Status != uverbs.WCSuccess:
		return 0, c.failed(wc)
	case wc.ID < uint64(len(c.requests)) || int64(wc.ByteLen) > int64(c.frame):
		return 0, fmt.Errorf("completion of receive %d with %d bytes was never asked for", wc.ID, wc.ByteLen)
	}
	seq, err := c.answer(c.slots.bytes(int(wc.ID), int(wc.ByteLen)))
	if postErr := c.postRecv(int(wc.ID)); postErr != nil {
		return 0, postErr
	}
	return seq, err
}

// answer checks a message against the request that it names, which is still in its slot.
func (c *echoClient) answer(b []byte) (uint64, error) {
	seq, err := checkMessage(b, c.size)
	if err != nil {
		return 0, &corruptError{"answer: " + err.Error()}
	}
	slot := int(seq % uint64(c.window))
	r := &c.requests[slot]
	if !r.awaiting || r.seq != seq {
		return 0, &corruptError{fmt.Sprintf("answer to request %d, which is not open", seq)}
	}
	r.awaiting = false
	if sent := c.slots.bytes(slot, headerLen+c.size); !bytes.Equal(sent, b) {
		return 0, &corruptError{fmt.Sprintf("answer to request %d: %s", seq, firstDifference(sent, b))}
	}
	return seq, nil
}

// firstDifference describes where two byte slices part.
func firstDifference(want, got []byte) string {
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			return fmt.Sprintf("byte %d is %#02x, sent was %#02x", i, got[i], want[i])
		}
	}
	return fmt.Sprintf("%d bytes, sent were %d", len(got), len(want))
}

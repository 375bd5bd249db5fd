package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// rpingPhase is where the client is within a round trip.
type rpingPhase uint8

const (
	phaseIdle  rpingPhase = iota
	phaseRead             // the server reads the text
	phaseWrite            // the server writes the echo
)

// rpingClient is the client of rping's protocol. Its requests carry no number, so that a
// late answer could be taken for the next one: a round trip that took too long is brought
// to its end before another begins.
type rpingClient struct {
	*link
	guard        *guard
	timeout      time.Duration
	phase        rpingPhase
	source, sink *uverbs.MR
}

// newRpingClient registers what the server reads from and writes to: two regions, so that
// it may do no more with either than it must.
func newRpingClient(ctx context.Context, l *link, size int, timeout time.Duration) (*rpingClient, error) {
	source, err := l.register(size, uverbs.AccessRemoteRead)
	if err != nil {
		return nil, err
	}
	sink, err := l.register(size, uverbs.AccessLocalWrite|uverbs.AccessRemoteWrite)
	if err != nil {
		return nil, err
	}
	return &rpingClient{link: l, guard: newGuard(ctx), timeout: timeout, source: source, sink: sink}, nil
}

func (c *rpingClient) ping(seq uint64) (time.Duration, error) {
	ctx := c.guard.start(c.timeout)
	defer c.guard.stop()
	if _, err := c.finish(ctx); err != nil {
		return 0, lost(err, "the request before is still without an answer")
	}
	if err := c.reap(); err != nil {
		return 0, err
	}
	fillRpingText(c.source.Bytes(), seq-1)
	clear(c.sink.Bytes())
	begin := time.Now()
	if err := c.offer(c.source, phaseRead); err != nil {
		return 0, err
	}
	at, err := c.finish(ctx)
	if err != nil {
		return 0, lost(err, fmt.Sprintf("waited %v", c.timeout))
	}
	if sent, got := c.source.Bytes(), c.sink.Bytes(); !bytes.Equal(sent, got) {
		return 0, &corruptError{fmt.Sprintf("echo of request %d: %s", seq, firstDifference(sent, got))}
	}
	return at.Sub(begin), nil
}

func (c *rpingClient) offer(mr *uverbs.MR, next rpingPhase) error {
	c.phase = next
	return c.sendInfo(&rpingInfo{addr: mr.Addr(), rkey: mr.RKey(), size: uint32(mr.Len())})
}

// finish brings the round trip under way, if any, to its end, and returns when that was.
func (c *rpingClient) finish(ctx context.Context) (at time.Time, err error) {
	if c.ended != nil {
		return at, c.ended
	}
	for c.phase != phaseIdle {
		var wcs []uverbs.WC
		if wcs, at, err = c.recv.wait(ctx); err != nil {
			return at, err
		}
		for i := range wcs {
			if err := c.goAhead(&wcs[i]); err != nil {
				c.ended = err
				break
			}
		}
		if c.ended != nil && c.phase != phaseIdle {
			return at, c.ended
		}
	}
	return at, nil
}

// goAhead takes one message of the server and does the next step.
func (c *rpingClient) goAhead(wc *uverbs.WC) error {
	if wc.Status != uverbs.WCSuccess {
		return c.failed(wc)
	}
	if wc.ByteLen != rpingInfoLen {
		return fmt.Errorf("rping: message of %d bytes, want %d", wc.ByteLen, rpingInfoLen)
	}
	if err := c.postRecv(int(wc.ID)); err != nil {
		return err
	}
	switch c.phase {
	case phaseRead:
		return c.offer(c.sink, phaseWrite)
	case phaseWrite:
		c.phase = phaseIdle
		return nil
	}
	return fmt.Errorf("rping: the server answers what was not asked")
}

// reap frees the places of completed sends.
func (c *rpingClient) reap() error {
	wcs, err := c.send.poll()
	for i := range wcs {
		if err == nil && wcs[i].Status != uverbs.WCSuccess {
			err = c.failed(&wcs[i])
		}
	}
	return err
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// echoServer answers one client of our own protocol. A message is sent back from the very
// slot that it came into, so a slot is received into again only when the device is done
// sending from it. There is one slot more than the client may have requests open: while it
// waits for an answer, another slot is ready.
type echoServer struct {
	*link
	guard   *guard
	idle    time.Duration
	size    int
	ready   int // slots posted for receiving
	answers uint64
	bytes   uint64
}

func newEchoServer(ctx context.Context, l *link, size, slots int, idle time.Duration) *echoServer {
	return &echoServer{link: l, guard: newGuard(ctx), idle: idle, size: size, ready: slots}
}

// serve answers until the client leaves (errPeerGone), stalls (errTimeout), breaks the
// rules, or the context ends.
func (s *echoServer) serve() error {
	defer s.guard.close()
	for {
		if err := s.step(); err != nil {
			return err
		}
	}
}

// step answers what has come. The time limit covers waiting for the client's next request
// as well as for its acknowledgement of an answer.
func (s *echoServer) step() error {
	ctx := s.guard.start(s.idle)
	defer s.guard.stop()
	for s.ready == 0 {
		wcs, _, err := s.send.wait(ctx)
		if err := s.sent(wcs, err); err != nil {
			return err
		}
	}
	wcs, _, err := s.recv.wait(ctx)
	if err != nil {
		return err
	}
	for i := range wcs {
		if err := s.answer(&wcs[i]); err != nil {
			return err
		}
	}
	return s.sent(s.send.poll())
}

func (s *echoServer) answer(wc *uverbs.WC) error {
	if wc.Status != uverbs.WCSuccess {
		return s.failed(wc)
	}
	s.ready--
	slot, n := int(wc.ID), int(wc.ByteLen)
	if n > s.frame {
		return fmt.Errorf("message of %d bytes in a slot of %d", n, s.frame)
	}
	if _, err := checkMessage(s.slots.bytes(slot, n), s.size); err != nil {
		return err
	}
	s.answers++
	s.bytes += uint64(n - headerLen)
	return s.postSend(slot, n)
}

// sent makes the slots of completed answers ready again.
func (s *echoServer) sent(wcs []uverbs.WC, err error) error {
	if err != nil {
		return err
	}
	for i := range wcs {
		if wcs[i].Status != uverbs.WCSuccess {
			return s.failed(&wcs[i])
		}
		if err := s.postRecv(int(wcs[i].ID)); err != nil {
			return err
		}
		s.ready++
	}
	return nil
}

func (s *echoServer) summary() string { return served(s.answers, s.bytes) }

func served(answers, bytes uint64) string {
	return fmt.Sprintf("%d answered, %d bytes", answers, bytes)
}

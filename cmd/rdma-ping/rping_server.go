package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// rpingServer answers one client of rping's protocol.
type rpingServer struct {
	*link
	guard   *guard
	idle    time.Duration
	limit   int        // largest text
	text    *uverbs.MR // grows to what the client offers, within limit
	answers uint64
	bytes   uint64
}

func newRpingServer(ctx context.Context, l *link, limit int, idle time.Duration) *rpingServer {
	return &rpingServer{link: l, guard: newGuard(ctx), idle: idle, limit: limit}
}

func (s *rpingServer) serve() error {
	defer s.guard.close()
	for {
		if err := s.step(); err != nil {
			return err
		}
	}
}

// step makes one round trip, within the time limit.
func (s *rpingServer) step() error {
	ctx := s.guard.start(s.idle)
	defer s.guard.stop()
	source, err := s.offer(ctx)
	if err != nil {
		return err
	}
	n := int(source.size)
	if err := s.fit(n); err != nil {
		return err
	}
	if err := s.read(ctx, &source); err != nil {
		return err
	}
	n = textLen(s.text.Bytes()[:n])
	if err := s.sendInfo(&rpingInfo{}); err != nil {
		return err
	}
	sink, err := s.offer(ctx)
	if err != nil {
		return err
	}
	if int(sink.size) < n {
		return fmt.Errorf("rping: client offers %d bytes for an echo of %d", sink.size, n)
	}
	s.answers++
	s.bytes += uint64(source.size)
	return s.write(&sink, n)
}

// offer waits for the client's next message.
func (s *rpingServer) offer(ctx context.Context) (rpingInfo, error) {
	wcs, _, err := s.recv.wait(ctx)
	if err != nil {
		return rpingInfo{}, err
	}
	wc := &wcs[0]
	if wc.Status != uverbs.WCSuccess {
		return rpingInfo{}, s.failed(wc)
	}
	if len(wcs) > 1 && wcs[1].Status == uverbs.WCSuccess {
		return rpingInfo{}, fmt.Errorf("rping: client sends without waiting for its turn")
	}
	if wc.ByteLen > uint32(s.frame) {
		return rpingInfo{}, fmt.Errorf("rping: message of %d bytes, want %d", wc.ByteLen, rpingInfoLen)
	}
	info, err := parseRpingInfo(s.slots.bytes(int(wc.ID), int(wc.ByteLen)), s.limit)
	if err != nil {
		return rpingInfo{}, err
	}
	return info, s.postRecv(int(wc.ID))
}

// fit makes room for a text of n bytes. The old region is no longer in use: a round trip
// begins only when the client knows that the last is over.
func (s *rpingServer) fit(n int) error {
	if s.text != nil && s.text.Len() >= n {
		return nil
	}
	mr, err := s.register(n, uverbs.AccessLocalWrite)
	if err != nil {
		return err
	}
	old := s.text
	s.text = mr
	return s.release(old)
}

// read fetches the client's text and waits for it.
func (s *rpingServer) read(ctx context.Context, from *rpingInfo) error {
	s.sendSGE[0] = s.text.SGE(0, int(from.size))
	s.sendWR[0] = uverbs.SendWR{
		ID: idRead, Opcode: uverbs.OpRDMARead, Flags: uverbs.SendSignaled, SGL: s.sendSGE[:],
		RemoteAddr: from.addr, RKey: from.rkey,
	}
	if _, err := s.conn.QP().PostSend(s.sendWR[:1]); err != nil {
		return err
	}
	for {
		wcs, _, err := s.send.wait(ctx)
		if err != nil {
			return err
		}
		// Those of earlier messages and writes come before it.
		for i := range wcs {
			if wcs[i].Status != uverbs.WCSuccess {
				return s.failed(&wcs[i])
			}
			if wcs[i].ID == idRead {
				return nil
			}
		}
	}
}

// write puts the echo into the client's memory and tells it so. The message cannot
// overtake the write: a queue pair does what is posted to it in order.
func (s *rpingServer) write(to *rpingInfo, n int) error {
	s.sendSGE[0] = s.text.SGE(0, n)
	s.putInfo(1, &rpingInfo{})
	s.sendWR[0] = uverbs.SendWR{
		ID: idWrite, Opcode: uverbs.OpRDMAWrite, SGL: s.sendSGE[:], RemoteAddr: to.addr, RKey: to.rkey,
	}
	_, err := s.conn.QP().PostSend(s.sendWR[:2])
	return err
}

func (s *rpingServer) summary() string { return served(s.answers, s.bytes) }

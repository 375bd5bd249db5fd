package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// The handshake of perftest's programs over a connection of rdma_cm (-R), as of perftest
// 4.5, which calls itself version 6.06; newer ones adapt. The two sides take turns, client
// first, and say: a version, the sizes of pages and of cache lines, the MTU; then, several
// times over to keep in step, where they are. In between the queue pair of the test is made,
// by a second connection to the same port. What is to be done is not said: both sides have
// to know it.
const (
	perftestVersion    = "6.06"
	perftestVersionLen = 16
	perftestOldest     = 5.70
	perftestDestLen    = 56
)

// perftestTalk is a side of the handshake.
type perftestTalk struct {
	peer   *perfPeer
	client bool
}

// exchange is one turn of each side.
func (t perftestTalk) exchange(out []byte, n int) (in []byte, err error) {
	if t.client {
		if err = t.peer.send(out); err == nil {
			in, err = t.receive(n)
		}
		return in, err
	}
	if in, err = t.receive(n); err == nil {
		err = t.peer.send(out)
	}
	return in, err
}

func (t perftestTalk) receive(n int) ([]byte, error) {
	b, err := t.peer.next(perftestPatience)
	switch {
	case errors.Is(err, errTimeout):
		return nil, fmt.Errorf("%w: both sides need the same test, size and count", err)
	case err == nil && len(b) != n:
		return nil, fmt.Errorf("the peer sent %d bytes, want %d: it is no perftest, or another version", len(b), n)
	}
	return b, err
}

// perftestPatience is longer than others: C programs make their memory meanwhile.
const perftestPatience = 20 * time.Second

// greet exchanges what comes before the addresses.
func (t perftestTalk) greet(mtu uverbs.MTU) error {
	in, err := t.exchange(append([]byte(perftestVersion), make([]byte, perftestVersionLen-len(perftestVersion))...), perftestVersionLen)
	if err == nil {
		err = checkPerftestVersion(in)
	}
	if err != nil {
		return err
	}
	// How large pages and cache lines are only matters to how the C programs lay out memory.
	for _, size := range []int{os.Getpagesize(), 64} {
		if _, err = t.exchange(binary.BigEndian.AppendUint32(nil, uint32(size)), 4); err != nil {
			return err
		}
	}
	_, err = t.exchange([]byte{'0' + byte(mtu), 0}, 2) // the connection manager knows better
	return err
}

func checkPerftestVersion(b []byte) error {
	text, _, _ := bytes.Cut(b, []byte{0})
	v, err := strconv.ParseFloat(string(text), 64)
	switch {
	case err != nil || !isPerftest(b):
		return fmt.Errorf("the peer sent %q, want a version: it is no perftest, or an old one", text)
	case !(v >= perftestOldest):
		return fmt.Errorf("the peer is perftest %s, want %.2f or newer", text, perftestOldest)
	}
	return nil
}

// perftestDest is what the two ends tell each other: struct pingpong_dest, big-endian.
type perftestDest struct {
	LID   uint32
	Reads uint32 // RDMA READs and atomics that its sender serves at once
	QPN   uint32
	PSN   uint32
	RKey  uint32
	_     uint32
	Addr  uint64 // where the peer may write, read, or do its atomics
	GID   uverbs.GID
	SRQN  uint32
	_     uint32
}

func (d perftestDest) marshal() []byte {
	b, err := binary.Append(make([]byte, 0, perftestDestLen), binary.BigEndian, d)
	if err != nil {
		panic("a message of no fixed size")
	}
	return b
}

func parsePerftestDest(b []byte) (d perftestDest, err error) {
	if len(b) != perftestDestLen {
		return d, fmt.Errorf("the peer sent %d bytes, want %d", len(b), perftestDestLen)
	}
	if err := binary.Read(bytes.NewReader(b), binary.BigEndian, &d); err != nil {
		return d, err
	}
	if d.QPN|d.PSN > 0xffffff {
		return perftestDest{}, fmt.Errorf("the peer sent queue pair %#x, first packet %#x: each has 24 bits", d.QPN, d.PSN)
	}
	return d, nil
}

// swap exchanges addresses.
func (t perftestTalk) swap(own perftestDest) (perftestDest, error) {
	in, err := t.exchange(own.marshal(), perftestDestLen)
	if err != nil {
		return perftestDest{}, err
	}
	return parsePerftestDest(in)
}

// step waits for the peer to come as far as this.
func (t perftestTalk) step(own, peer perftestDest) error {
	again, err := t.swap(own)
	if err == nil && again != peer {
		err = errors.New("the peer changed its address: the two sides are out of step")
	}
	return err
}

// pair makes the second connection, between two steps with addresses that are still empty.
func (t perftestTalk) pair(ctx context.Context, connect func(context.Context) error) error {
	if err := t.step(perftestDest{}, perftestDest{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, perftestPatience)
	defer cancel()
	if err := connect(ctx); err != nil {
		return err
	}
	return t.step(perftestDest{}, perftestDest{})
}

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/pureverbs/rdma/uverbs"
)

// link carries the messages of the handshake, and makes the queue pair of the test. The two
// sides take turns, client first.
type link interface {
	context() *uverbs.Context
	send(ctx context.Context, b []byte) error
	receive(ctx context.Context, n int) ([]byte, error) // exactly n bytes
	encode(d dest) []byte
	decode(b []byte) (dest, error)
	destLen() int
	// pair makes the queue pair of e and what belongs to it, and maybe connects it.
	pair(ctx context.Context, h handshake, e *end) error
	// connect connects it, if pair did not.
	connect(e *end) error
	// farewell waits until the peer has left; ends says that the two tell each other first.
	farewell(ctx context.Context, ends bool) error
	close() error
}

type handshake struct {
	link
	client bool
}

// exchange is one turn of each side.
func (h handshake) exchange(ctx context.Context, out []byte, n int) (in []byte, err error) {
	if h.client {
		if err = h.send(ctx, out); err == nil {
			in, err = h.receive(ctx, n)
		}
		return in, err
	}
	if in, err = h.receive(ctx, n); err == nil {
		err = h.send(ctx, out)
	}
	return in, err
}

const (
	version    = "6.06"
	minVersion = 5.70
	versionLen = 16
	cacheLine  = 64
)

// greet exchanges what comes before the addresses, and returns the path's MTU.
func (h handshake) greet(ctx context.Context) (uverbs.MTU, error) {
	port, err := h.context().QueryPort(1)
	if err != nil {
		return 0, err
	}
	in, err := h.exchange(ctx, append([]byte(version), make([]byte, versionLen-len(version))...), versionLen)
	if err != nil {
		return 0, fmt.Errorf("exchange versions: %w", err)
	}
	if err := checkVersion(in); err != nil {
		return 0, err
	}
	// How large pages and cache lines are only matters to how the C programs lay out memory.
	for _, size := range []int{os.Getpagesize(), cacheLine} {
		if in, err = h.exchange(ctx, binary.BigEndian.AppendUint32(nil, uint32(size)), 4); err != nil {
			return 0, fmt.Errorf("exchange sizes: %w", err)
		}
		if n := binary.BigEndian.Uint32(in); n == 0 || n > 1<<30 {
			return 0, fmt.Errorf("the peer sent size %d of its pages or cache lines", n)
		}
	}
	if in, err = h.exchange(ctx, []byte{'0' + byte(port.ActiveMTU), 0}, 2); err != nil {
		return 0, fmt.Errorf("exchange MTUs: %w", err)
	}
	return pathMTU(port.ActiveMTU, in)
}

func checkVersion(b []byte) error {
	text, _, _ := bytes.Cut(b, []byte{0})
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || len(text) == 0 {
		return fmt.Errorf("the peer sent %q, want a version: it is no perftest, or an old one", b)
	}
	if !(v >= minVersion) {
		return fmt.Errorf("the peer has version %s, want %.2f or newer", text, minVersion)
	}
	return nil
}

// pathMTU is the smaller one.
func pathMTU(own uverbs.MTU, b []byte) (uverbs.MTU, error) {
	peer := uverbs.MTU(b[0] - '0')
	if peer.Bytes() == 0 || b[1] != 0 {
		return 0, fmt.Errorf("the peer sent %q, want the code of an MTU", b)
	}
	return min(own, peer), nil
}

// swap exchanges addresses. It also serves to keep the two sides in step.
func (h handshake) swap(ctx context.Context, own dest) (dest, error) {
	in, err := h.exchange(ctx, h.encode(own), h.destLen())
	if err != nil {
		return dest{}, fmt.Errorf("exchange addresses: %w", err)
	}
	return h.decode(in)
}

var errStep = errors.New("the peer changed its address: the two sides are out of step")

// step waits for the peer to come as far as this.
func (h handshake) step(ctx context.Context, own, peer dest) error {
	again, err := h.swap(ctx, own)
	if err == nil && again != peer {
		err = errStep
	}
	return err
}

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pureverbs/rdma/uverbs"
)

// dest is what the two ends tell each other: struct pingpong_dest.
type dest struct {
	lid      uint32
	outReads uint32 // RDMA READs and atomics that the sender of this serves at once
	qpn, psn uint32
	rkey     uint32
	vaddr    uint64 // where the peer may write, read, or do its atomics
	gid      uverbs.GID
	srqn     uint32
}

// Over TCP it is text, "lid:reads:qpn:psn:rkey:vaddr:g0:...:g15:srqn:" in hexadecimal and a
// zero byte.
const textLen = 108

func (d dest) text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%04x:%04x:%06x:%06x:%08x:%016x:", d.lid, d.outReads, d.qpn, d.psn, d.rkey, d.vaddr)
	for _, g := range d.gid {
		fmt.Fprintf(&b, "%02x:", g)
	}
	fmt.Fprintf(&b, "%08x:\x00", d.srqn)
	return b.Bytes()
}

var errDest = errors.New("want lid:reads:qpn:psn:rkey:vaddr:gid:srqn in hexadecimal")

func parseText(b []byte) (d dest, err error) {
	field := strings.Split(string(b), ":")
	if len(b) != textLen || len(field) != 24 || field[23] != "\x00" {
		return dest{}, fmt.Errorf("the peer sent %q: %w", b, errDest)
	}
	number := func(i, bits int) uint64 {
		n, bad := strconv.ParseUint(field[i], 16, bits)
		err = errors.Join(err, bad)
		return n
	}
	d = dest{
		lid: uint32(number(0, 16)), outReads: uint32(number(1, 16)),
		qpn: uint32(number(2, 24)), psn: uint32(number(3, 24)),
		rkey: uint32(number(4, 32)), vaddr: number(5, 64), srqn: uint32(number(22, 32)),
	}
	for i := range d.gid {
		d.gid[i] = byte(number(6+i, 8))
	}
	if err != nil {
		return dest{}, fmt.Errorf("the peer sent %q: %w", b, errDest)
	}
	return d, nil
}

// Over a queue pair it is the struct itself, big-endian; the last word is the index of the
// sender's GID.
const binaryLen = 56

func (d dest) binary() []byte {
	b := make([]byte, binaryLen)
	for i, n := range []uint32{d.lid, d.outReads, d.qpn, d.psn, d.rkey} {
		binary.BigEndian.PutUint32(b[4*i:], n)
	}
	binary.BigEndian.PutUint64(b[24:], d.vaddr)
	copy(b[32:], d.gid[:])
	binary.BigEndian.PutUint32(b[48:], d.srqn)
	return b
}

func parseBinary(b []byte) (d dest, err error) {
	if len(b) != binaryLen {
		return dest{}, fmt.Errorf("the peer sent %d bytes, want %d", len(b), binaryLen)
	}
	for i, p := range []*uint32{&d.lid, &d.outReads, &d.qpn, &d.psn, &d.rkey} {
		*p = binary.BigEndian.Uint32(b[4*i:])
	}
	d.vaddr = binary.BigEndian.Uint64(b[24:])
	copy(d.gid[:], b[32:])
	d.srqn = binary.BigEndian.Uint32(b[48:])
	if d.qpn|d.psn > 0xffffff {
		return dest{}, fmt.Errorf("the peer sent queue pair %#x, first packet %#x: each has 24 bits", d.qpn, d.psn)
	}
	return d, nil
}

// check refuses what the test cannot work with.
func (d dest) check(t *test, o options, own uverbs.GID) error {
	switch {
	case d.qpn == 0:
		return errors.New("the peer named no queue pair")
	case t.remote && d.rkey == 0:
		return errors.New("the peer gave no remote key: it runs another test")
	case t.remote && d.vaddr > ^uint64(0)-uint64(o.size):
		return fmt.Errorf("the peer's memory is at %#x, where no %d bytes are", d.vaddr, o.size)
	case o.test == "atomic" && d.vaddr%8 != 0:
		return fmt.Errorf("the peer's memory is at %#x, which no atomic operation can reach", d.vaddr)
	case !t.bothWays && d.outReads == 0:
		return errors.New("the peer serves no RDMA READs and atomics")
	case !o.cm && d.gid.Addr().Is4() != own.Addr().Is4():
		return fmt.Errorf("the peer's GID is %v, ours %v: choose the same family with -x", d.gid.Addr(), own.Addr())
	}
	return nil
}

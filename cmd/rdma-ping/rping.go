package main

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/pureverbs/rdma/uverbs"
)

// The protocol of rping (rdma-core, librdmacm/examples/rping.c). No private data. The client
// leads, and there is one round trip at a time:
//
//	client  SEND        where its text is: address, key, size
//	server  RDMA READ   the text
//	server  SEND        go ahead (contents mean nothing)
//	client  SEND        where the echo may go
//	server  RDMA WRITE  the text, up to and with its terminating zero
//	server  SEND        go ahead: the echo is there
//
// All SENDs are 16 bytes, all numbers big-endian:
//
//	offset  bytes  field
//	     0      8  address
//	     8      4  remote key
//	    12      4  size in bytes
const rpingInfoLen = 16

// rpingMax is the largest buffer that C rping has (RPING_BUFSIZE - 1).
const rpingMax = 64<<10 - 1

// rpingInfo is memory that a client offers.
type rpingInfo struct {
	addr uint64
	rkey uint32
	size uint32
}

func (i *rpingInfo) marshal(b *[rpingInfoLen]byte) {
	binary.BigEndian.PutUint64(b[0:], i.addr)
	binary.BigEndian.PutUint32(b[8:], i.rkey)
	binary.BigEndian.PutUint32(b[12:], i.size)
}

// parseRpingInfo checks what a client offers: exactly one information, about 1 to limit
// bytes that do not wrap around the end of the address space.
func parseRpingInfo(b []byte, limit int) (rpingInfo, error) {
	if len(b) != rpingInfoLen {
		return rpingInfo{}, fmt.Errorf("rping: message of %d bytes, want %d", len(b), rpingInfoLen)
	}
	i := rpingInfo{
		addr: binary.BigEndian.Uint64(b[0:]),
		rkey: binary.BigEndian.Uint32(b[8:]),
		size: binary.BigEndian.Uint32(b[12:]),
	}
	if i.size == 0 || int64(i.size) > int64(limit) {
		return rpingInfo{}, fmt.Errorf("rping: client offers %d bytes, allowed are 1 to %d", i.size, limit)
	}
	if i.addr+uint64(i.size) < i.addr {
		return rpingInfo{}, fmt.Errorf("rping: client offers %d bytes at %#x, beyond the end of memory", i.size, i.addr)
	}
	return i, nil
}

// fillRpingText writes the text of rping's message number ping (from 0): a head that names
// the number, then letters that begin one further with each message, then a zero.
func fillRpingText(b []byte, ping uint64) {
	const first, last = 'A', 'z'
	n := copy(b, "rdma-ping-"+strconv.FormatUint(ping, 10)+": ")
	c := byte(first + ping%(last-first+1))
	for i := n; i < len(b); i++ {
		b[i] = c
		if c++; c > last {
			c = first
		}
	}
	b[len(b)-1] = 0
}

// textLen is the length of a text with its terminating zero, or all of b without one.
func textLen(b []byte) int {
	for i, c := range b {
		if c == 0 {
			return i + 1
		}
	}
	return len(b)
}

// sendInfo sends an information from the caller's stack: inline, so that no memory must
// wait for the completion.
func (l *link) sendInfo(info *rpingInfo) error {
	l.putInfo(0, info)
	_, err := l.conn.QP().PostSend(l.sendWR[:1])
	return err
}

// putInfo fills work request i with a SEND of info.
func (l *link) putInfo(i int, info *rpingInfo) {
	info.marshal(&l.infos[i])
	l.inline[i][0] = l.infos[i][:]
	l.sendWR[i] = uverbs.SendWR{
		ID: idInfo, Opcode: uverbs.OpSend, Flags: uverbs.SendInline | uverbs.SendSignaled, Inline: l.inline[i][:],
	}
}

// Identifiers of rping's work requests of the send queue.
const (
	idInfo = iota + 1
	idRead
	idWrite
)

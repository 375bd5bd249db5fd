package main

import (
	"encoding/binary"
	"fmt"
)

// A message of rdma-ping's own protocol is a SEND. The server sends it back as it is.
//
//	offset  bytes  field, big-endian
//	     0      4  magic "PING"
//	     4      4  size: bytes of data that follow the header
//	     8      8  sequence number, from 1
//	    16   size  data: a pattern that depends on the sequence number
const (
	messageMagic = 0x50494e47
	headerLen    = 16

	// maxData keeps a message below the 2^31 bytes of a reliable connection, with room to
	// spare for the other slots of a region.
	maxData = 1 << 28
)

// fillMessage writes message seq over the whole of b, header and data.
func fillMessage(b []byte, seq uint64) {
	binary.BigEndian.PutUint32(b, messageMagic)
	binary.BigEndian.PutUint32(b[4:], uint32(len(b)-headerLen))
	binary.BigEndian.PutUint64(b[8:], seq)
	fillPattern(b[headerLen:], seq)
}

// fillPattern writes data that differ from word to word and from message to message, so
// that a byte of another place or of an earlier message is noticed.
func fillPattern(b []byte, seq uint64) {
	const odd = 0x9e3779b97f4a7c15 // of the golden ratio: multiples look random
	v := seq * odd
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, v)
		v += odd
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
}

// checkMessage looks at a message from a peer, of which size bytes of data are expected
// at most, and returns its sequence number.
func checkMessage(b []byte, size int) (uint64, error) {
	if len(b) < headerLen {
		return 0, fmt.Errorf("message of %d bytes, the header alone has %d", len(b), headerLen)
	}
	if m := binary.BigEndian.Uint32(b); m != messageMagic {
		return 0, fmt.Errorf("message begins with %#08x, want %#08x", m, messageMagic)
	}
	if n := binary.BigEndian.Uint32(b[4:]); int64(n) != int64(len(b)-headerLen) {
		return 0, fmt.Errorf("message of %d bytes of data says it has %d", len(b)-headerLen, n)
	}
	if len(b)-headerLen > size {
		return 0, fmt.Errorf("message of %d bytes of data, agreed were %d", len(b)-headerLen, size)
	}
	return binary.BigEndian.Uint64(b[8:]), nil
}

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The handshake of rdma-ping. A hello travels in the private data of the connection
// manager: the request's from the client, the reply's or the rejection's from the server.
// All numbers are big-endian.
//
//	offset  bytes  field
//	     0      4  magic "RPNG"
//	     4      1  version, 1
//	     5      1  kind: 1 request, 2 accept, 3 reject
//	     6      2  length of this hello in bytes, from the magic on
//	     8      4  size: bytes of data a message. request: wanted; accept: granted, the
//	               same; reject: the server's limit
//	    12      2  window: requests that may be without an answer at a time.
//	               request: wanted; accept: granted, at most that
//	    14      2  reason, in a reject: see below
//	    16      4  flags: 0; a receiver ignores those it does not know
//	    20      4  idle: in an accept, milliseconds of silence after which the server
//	               closes the connection, 0 for never
//	    24         end of version 1; what a longer hello adds is ignored
//
// The hello says its own length because the connection manager does not: on InfiniBand and
// RoCE private data arrive padded with zeros to the size of the field, 56 bytes in a
// request, 196 in a reply and 148 in a rejection, and a peer that sent none seems to have
// sent 56 zeros. All zeros are therefore how rping is recognised, which sends none.
const (
	helloMagic   = "RPNG"
	helloVersion = 1
	helloLen     = 24
	maxPrivate   = 56 // private data of a request over InfiniBand and RoCE
)

type helloKind uint8

const (
	kindRequest helloKind = 1
	kindAccept  helloKind = 2
	kindReject  helloKind = 3
)

// rejectReason says why the server refuses.
type rejectReason uint16

const (
	reasonNone     rejectReason = 0
	reasonProtocol rejectReason = 1 // the hello makes no sense, or is none
	reasonVersion  rejectReason = 2
	reasonTooLarge rejectReason = 3 // messages larger than the server's limit
	reasonBusy     rejectReason = 4 // as many clients as the server takes
	reasonMemory   rejectReason = 5 // the server cannot register the memory
	reasonDevice   rejectReason = 6 // the server cannot open the device that the request came in on
)

type hello struct {
	version uint8
	kind    helloKind
	size    uint32
	window  uint16
	reason  rejectReason
	flags   uint32
	idle    uint32
}

// errNotHello says that private data are not from rdma-ping.
var errNotHello = errors.New("not the hello of rdma-ping")

func (h *hello) idleTime() time.Duration { return time.Duration(h.idle) * time.Millisecond }

// marshal returns the hello as the current version writes it.
func (h *hello) marshal() []byte {
	b := make([]byte, 0, helloLen)
	b = append(b, helloMagic...)
	b = append(b, helloVersion, byte(h.kind))
	b = binary.BigEndian.AppendUint16(b, helloLen)
	b = binary.BigEndian.AppendUint32(b, h.size)
	b = binary.BigEndian.AppendUint16(b, h.window)
	b = binary.BigEndian.AppendUint16(b, uint16(h.reason))
	b = binary.BigEndian.AppendUint32(b, h.flags)
	return binary.BigEndian.AppendUint32(b, h.idle)
}

// parseHello reads private data. The error is errNotHello if they are of another program;
// other errors mean a hello that lies. A hello of another version is returned with its
// version alone: what the fields mean is not known.
func parseHello(b []byte) (hello, error) {
	if len(b) < len(helloMagic) || string(b[:len(helloMagic)]) != helloMagic {
		return hello{}, errNotHello
	}
	if len(b) < helloLen {
		return hello{}, fmt.Errorf("hello is cut short: %d bytes", len(b))
	}
	h := hello{version: b[4], kind: helloKind(b[5])}
	if h.version != helloVersion {
		return h, nil
	}
	n := int(binary.BigEndian.Uint16(b[6:]))
	if n < helloLen || n > len(b) {
		return hello{}, fmt.Errorf("hello of %d bytes says it has %d", len(b), n)
	}
	if h.kind < kindRequest || h.kind > kindReject {
		return hello{}, fmt.Errorf("hello of unknown kind %d", h.kind)
	}
	h.size = binary.BigEndian.Uint32(b[8:])
	h.window = binary.BigEndian.Uint16(b[12:])
	h.reason = rejectReason(binary.BigEndian.Uint16(b[14:]))
	h.flags = binary.BigEndian.Uint32(b[16:])
	h.idle = binary.BigEndian.Uint32(b[20:])
	return h, nil
}

// isRping tells whether private data are those of rping: none, however padded.
func isRping(private []byte) bool {
	for _, b := range private {
		if b != 0 {
			return false
		}
	}
	return true
}

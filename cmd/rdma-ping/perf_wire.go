package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/pureverbs/rdma/uverbs"
)

// The messages of rdma-ping perf. They go over a control connection: one of rdma_cm, where
// each is a SEND, or TCP. All have the same length, whatever their kind; unused bytes are 0
// and ignored. The first of them also fit into private data of rdma_cm, cut short: see
// perfHello. All numbers are big-endian.
//
//	offset  bytes  field
//	     0      4  magic "RPRF"
//	     4      1  version, 1
//	     5      1  kind
//	     6      2  0
//	     8     56  the fields of the kind
//
// The client begins with a plan. The server answers with a grant or a refusal, and makes
// what the plan needs. The queue pairs come next: where rdma_cm connects them, each is a
// connection of its own to the same port, which is known by the token of the grant and
// exchanges one empty message each way. Then for each queue pair the client says where it is
// and what memory it has, and so does the server. Any number of rounds follow:
//
//	begin   client  what is to be done
//	ready   server  receives are posted
//	        both    messages over the queue pairs
//	end     client  all of the client's have been sent
//	result  server  what came, and what the server sent
//
// Whoever is done closes the control connection.
const (
	perfMagic   = "RPRF"
	perfVersion = 1
	perfMsgLen  = 64
	perfHeadLen = 8
)

type perfKind uint8

const (
	perfKindPlan   perfKind = 1
	perfKindGrant  perfKind = 2
	perfKindRefuse perfKind = 3
	perfKindLane   perfKind = 4
	perfKindBegin  perfKind = 5
	perfKindReady  perfKind = 6
	perfKindEnd    perfKind = 7
	perfKindResult perfKind = 8
	perfKindHello  perfKind = 9 // in private data only
)

// perfBody is what the fields of a kind look like.
type perfBody interface {
	perfPlanBody | perfGrantBody | perfRefuseBody | perfLaneBody | perfBeginBody | perfEndBody | perfResultBody | perfHelloBody | struct{}
}

type perfPlanBody struct {
	Mode, Op, Transport, Flags uint8
	Size                       uint32
	QPs, Depth, Batch          uint16
}

const (
	perfFlagBidirectional = 1 << iota
	perfFlagVerify
	perfFlagCM
)

type perfGrantBody struct {
	Token uint64
}

type perfRefuseBody struct {
	Reason perfReason
	Limit  uint32
}

type perfLaneBody struct {
	Index  uint16
	LID    uint16
	MTU    uint8 // code of the port's MTU
	Reads  uint8 // RDMA READs and atomics that are served at once
	_      uint16
	QPN    uint32
	PSN    uint32
	QKey   uint32
	RKey   uint32
	Addr   uint64
	Length uint32 // of the memory at Addr
	GID    uverbs.GID
}

type perfBeginBody struct {
	Size, Warmup    uint32
	Count, Duration uint64 // nanoseconds
}

type perfEndBody struct {
	Sent uint64
}

type perfResultBody struct {
	Received uint64 // messages that came, those to warm up among them
	Sent     uint64 // messages that the server sent, those too
	Measured uint64 // and of them those that count,
	Nanos    uint64 // in this time
	Corrupt  uint8  // 1: the data are not what was sent
}

type perfHelloBody struct {
	Token  uint64 // of a queue pair's connection; 0: a control connection
	Reason perfReason
	_      uint16
	Limit  uint32
}

// perfHelloLen is the length of a message of kind hello in private data.
const perfHelloLen = perfHeadLen + 16

// perfMessage writes a message.
func perfMessage[T perfBody](kind perfKind, body T) []byte {
	b := make([]byte, perfHeadLen, perfMsgLen)
	copy(b, perfMagic)
	b[4], b[5] = perfVersion, byte(kind)
	b, err := binary.Append(b, binary.BigEndian, body)
	if err != nil || len(b) > perfMsgLen {
		panic("a message of no fixed size")
	}
	return b[:perfMsgLen]
}

// perfHello is private data.
func perfHello(body perfHelloBody) []byte {
	return perfMessage(perfKindHello, body)[:perfHelloLen]
}

var (
	errNotPerf  = errors.New("not a message of rdma-ping perf")
	errPerfest  = errors.New("a client of perftest")
	errPerfKind = errors.New("a message out of turn")
)

// perfVersionError is a peer of another version.
type perfVersionError struct{ version uint8 }

func (e *perfVersionError) Error() string {
	return fmt.Sprintf("protocol version %d, this is %d: use the same rdma-ping on both sides", e.version, perfVersion)
}

// checkPerf looks at the header of a message.
func checkPerf(b []byte) (perfKind, error) {
	switch {
	case len(b) < perfHeadLen:
		return 0, errNotPerf
	case isPerftest(b):
		return 0, errPerfest
	case string(b[:len(perfMagic)]) != perfMagic:
		return 0, errNotPerf
	case b[4] != perfVersion:
		return 0, &perfVersionError{b[4]}
	}
	return perfKind(b[5]), nil
}

// isPerftest tells whether something begins as perftest does, with a version such as 6.06.
func isPerftest(b []byte) bool {
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	return len(b) >= 4 && digit(b[0]) && (b[1] == '.' || digit(b[1]) && b[2] == '.') && digit(b[3])
}

// parsePerf reads the body of a message of a kind.
func parsePerf[T perfBody](b []byte, want perfKind) (body T, err error) {
	kind, err := checkPerf(b)
	switch {
	case err != nil:
		return body, err
	case kind == perfKindRefuse && want != perfKindRefuse:
		refused, err := parsePerf[perfRefuseBody](b, perfKindRefuse)
		if err != nil {
			return body, err
		}
		return body, &perfRefusal{reason: refused.Reason, limit: refused.Limit}
	case kind != want:
		return body, fmt.Errorf("%w: kind %d, want %d", errPerfKind, kind, want)
	}
	if err := binary.Read(bytes.NewReader(b[perfHeadLen:]), binary.BigEndian, &body); err != nil {
		return body, fmt.Errorf("message is cut short: %d bytes", len(b))
	}
	return body, nil
}

func (p *perfPlan) body() perfPlanBody {
	b := perfPlanBody{
		Mode: uint8(p.mode), Op: uint8(p.op), Transport: uint8(p.transport), Size: uint32(p.size),
		QPs: uint16(p.qps), Depth: uint16(p.depth), Batch: uint16(p.batch),
	}
	for bit, on := range map[uint8]bool{perfFlagBidirectional: p.bidirectional, perfFlagVerify: p.verify, perfFlagCM: p.cm} {
		if on {
			b.Flags |= bit
		}
	}
	return b
}

// plan is checked.
func (b *perfPlanBody) plan() (perfPlan, error) {
	if b.Size > perfMaxSize {
		return perfPlan{}, fmt.Errorf("messages of %d bytes", b.Size)
	}
	p := perfPlan{
		mode: perfMode(b.Mode), op: perfOp(b.Op), transport: perfTransport(b.Transport), size: int(b.Size),
		qps: int(b.QPs), depth: int(b.Depth), batch: int(b.Batch),
		bidirectional: b.Flags&perfFlagBidirectional != 0, verify: b.Flags&perfFlagVerify != 0, cm: b.Flags&perfFlagCM != 0,
	}
	return p, p.check()
}

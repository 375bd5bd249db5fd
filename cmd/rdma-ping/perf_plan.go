package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// perfMode is what is measured.
type perfMode uint8

const (
	perfLat perfMode = 1 // the time of one message after the other
	perfBW  perfMode = 2 // how much many at a time carry
)

func (m perfMode) String() string {
	if m == perfLat {
		return "latency"
	}
	return "bandwidth"
}

// perfOp is the operation that is measured.
type perfOp uint8

const (
	perfSend   perfOp = 1
	perfWrite  perfOp = 2
	perfRead   perfOp = 3
	perfAtomic perfOp = 4 // FetchAdd, 8 bytes
)

var perfOps = []string{perfSend: "send", perfWrite: "write", perfRead: "read", perfAtomic: "atomic"}

func (o perfOp) String() string { return nameOf(perfOps, uint8(o)) }

// remote is what the peer of an operation has to allow.
func (o perfOp) remote() uverbs.AccessFlags {
	switch o {
	case perfWrite:
		return uverbs.AccessRemoteWrite
	case perfRead:
		return uverbs.AccessRemoteRead
	case perfAtomic:
		return uverbs.AccessRemoteAtomic
	}
	return 0
}

// perfTransport is the type of the queue pairs.
type perfTransport uint8

const (
	perfRC perfTransport = 1
	perfUC perfTransport = 2
	perfUD perfTransport = 3
)

var perfTransports = []string{perfRC: "rc", perfUC: "uc", perfUD: "ud"}

func (t perfTransport) String() string { return strings.ToUpper(nameOf(perfTransports, uint8(t))) }

func (t perfTransport) qpType() uverbs.QPType {
	switch t {
	case perfUC:
		return uverbs.QPTypeUC
	case perfUD:
		return uverbs.QPTypeUD
	}
	return uverbs.QPTypeRC
}

func nameOf(names []string, i uint8) string {
	if int(i) < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("%d", i)
}

// The limits of a plan, whoever makes it. A server has lower ones of its own.
const (
	perfMaxQPs   = 64
	perfMaxDepth = 4096
	perfMaxSize  = maxData
)

// perfPlan is what the two sides agree on before anything is made.
type perfPlan struct {
	mode          perfMode
	op            perfOp
	transport     perfTransport
	bidirectional bool
	verify        bool
	cm            bool // the connection manager connects the queue pairs
	size          int  // bytes of the largest message
	qps           int
	depth         int // messages under way at a time, a queue pair
	batch         int // messages posted at a time
}

// check refuses what cannot be; the texts suit the command line.
func (p *perfPlan) check() error {
	switch {
	case p.mode != perfLat && p.mode != perfBW:
		return fmt.Errorf("unknown mode %d", p.mode)
	case p.op < perfSend || p.op > perfAtomic:
		return fmt.Errorf("unknown operation %d", p.op)
	case p.transport < perfRC || p.transport > perfUD:
		return fmt.Errorf("unknown transport %d", p.transport)
	case p.transport == perfUC && p.op != perfSend && p.op != perfWrite:
		return fmt.Errorf("an unreliable connection (uc) has no %s, only send and write", p.op)
	case p.transport == perfUD && p.op != perfSend:
		return fmt.Errorf("datagrams (ud) have no %s, only send", p.op)
	case p.op == perfAtomic && p.size != 8:
		return errors.New("atomic operations have 8 bytes")
	case p.size < 1 || p.size > perfMaxSize:
		return fmt.Errorf("messages of %d bytes: from 1 to %d", p.size, perfMaxSize)
	case p.qps < 1 || p.qps > perfMaxQPs:
		return fmt.Errorf("%d queue pairs: from 1 to %d", p.qps, perfMaxQPs)
	case p.depth < 1 || p.depth > perfMaxDepth:
		return fmt.Errorf("depth %d: from 1 to %d", p.depth, perfMaxDepth)
	case p.batch < 1 || p.batch > p.depth:
		return fmt.Errorf("batch %d: from 1 to the depth, %d", p.batch, p.depth)
	case p.mode == perfLat && (p.bidirectional || p.depth != 1):
		return errors.New("latency is measured with one message at a time")
	}
	return nil
}

// active tells whether the server, too, works during a round.
func (p *perfPlan) active() bool { return p.op == perfSend || p.mutual() }

// mutual tells whether the server, too, uses the client's memory, or sends data.
func (p *perfPlan) mutual() bool {
	return p.bidirectional || p.mode == perfLat && (p.op == perfSend || p.op == perfWrite)
}

// reliable tells whether what is sent arrives.
func (p *perfPlan) reliable() bool { return p.transport == perfRC }

// grh is what comes before a received message.
func (p *perfPlan) grh() int {
	if p.transport == perfUD {
		return uverbs.GRHSize
	}
	return 0
}

// Flow control of messages that need a receive: a sender may have window messages without
// an answer, and the receiver answers every quantum of them with an empty message, a credit.
// So there is a receive for each message on any transport, where it is a must (siw) or a
// matter of speed.
func (p *perfPlan) window() int  { return 2 * p.depth }
func (p *perfPlan) quantum() int { return max(1, p.depth/2) }

// credits is how many of them can be under way at a time.
func (p *perfPlan) credits() int { return p.window()/p.quantum() + 2 }

// receives is how many are posted: for the window, for as much again as a late credit may
// let through, and for credits. Operations without receives need one, to be greeted.
func (p *perfPlan) receives() int {
	if p.op != perfSend {
		return 1
	}
	return p.window() + p.quantum() + p.credits()
}

// sends is how many send requests can be under way.
func (p *perfPlan) sends() int { return p.depth + p.credits() + 2 }

// caps has one place more for receives: a device may report one before its place is free.
func (p *perfPlan) caps() uverbs.QPCap {
	return uverbs.QPCap{MaxSendWR: uint32(p.sends()), MaxRecvWR: uint32(p.receives() + 1), MaxSendSGE: 1, MaxRecvSGE: 1}
}

// memory is what one side registers for all queue pairs.
func (p *perfPlan) memory() int64 {
	const page = 4096
	one := func(n int) int64 { return (int64(n) + page - 1) / page * page }
	return int64(p.qps) * (one(p.size) + one(p.grh()+p.size))
}

// supported says what a device cannot do of a plan.
func (p *perfPlan) supported(d *uverbs.Device) error {
	if d.Protocol() != "iw" {
		return nil
	}
	what := ""
	switch {
	case p.transport != perfRC:
		what = "queue pairs of type " + p.transport.String() + ": iWARP has reliable connections only"
	case p.op == perfAtomic:
		what = "atomic operations: iWARP has none"
	case !p.cm:
		what = "connections by hand: iWARP connects by rdma_cm only, leave --tcp out"
	default:
		return nil
	}
	return fmt.Errorf("%s, an iWARP device: %w: %s", d.Name(), uverbs.ErrNotSupported, what)
}

// perfRound is one measurement.
type perfRound struct {
	size     int
	warmup   int    // messages a queue pair that do not count
	count    uint64 // messages a queue pair; 0: as long as duration
	duration time.Duration
}

// perfMaxCount bounds the messages of a round, so that sums do not overflow.
const perfMaxCount = 1 << 40

func (r *perfRound) check(p *perfPlan) error {
	switch {
	case r.size < 1 || r.size > p.size || p.op == perfAtomic && r.size != 8:
		return fmt.Errorf("messages of %d bytes, agreed were %d", r.size, p.size)
	case r.warmup < 0 || r.warmup > 1<<24:
		return fmt.Errorf("%d messages to warm up", r.warmup)
	case r.count > perfMaxCount || r.duration < 0 || r.duration > perfMaxTime:
		return fmt.Errorf("%d messages, %v: out of range", r.count, r.duration)
	case (r.count == 0) == (r.duration == 0):
		return errors.New("want a number of messages, or a duration")
	}
	return nil
}

// perfMaxTime bounds a round.
const perfMaxTime = 24 * time.Hour

// sizesText is a list of sizes for people.
func sizesText(sizes []int) string {
	if len(sizes) == 1 {
		return formatSize(sizes[0])
	}
	return fmt.Sprintf("%d sizes from %s to %s", len(sizes), formatSize(slices.Min(sizes)), formatSize(slices.Max(sizes)))
}

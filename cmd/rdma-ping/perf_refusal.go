package main

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/pureverbs/rdma/rdmacm"
)

// perfReason says why a server of perf refuses.
type perfReason uint16

const (
	perfProtocol perfReason = 1 // what came makes no sense
	perfOld      perfReason = 2 // it is of another version
	perfTooLarge perfReason = 3 // messages larger than the server's limit, which comes along
	perfTooMuch  perfReason = 4 // more memory than the limit, in KiB
	perfTooMany  perfReason = 5 // more queue pairs than the limit
	perfTooLong  perfReason = 6 // longer than the limit, in seconds
	perfBusy     perfReason = 7 // as many clients as the server takes
	perfMemory   perfReason = 8 // the server cannot make what it takes
	perfDevice   perfReason = 9 // the server's device cannot do it
)

// perfRefusal is a refusal, on either side. why is for the server's own log.
type perfRefusal struct {
	reason perfReason
	limit  uint32
	why    string
}

func (e *perfRefusal) Error() string {
	if e.why != "" {
		return "refused: " + e.why
	}
	return "the server refused: " + e.text()
}

func (e *perfRefusal) text() string {
	switch e.reason {
	case perfProtocol:
		return "it could not read our request; are both sides of the same version?"
	case perfOld:
		return "it speaks another version of the protocol; use the same rdma-ping on both sides"
	case perfTooLarge:
		return fmt.Sprintf("its messages have at most %s; ask for less with -s, or start it with a larger --max-size", formatSize(int(e.limit)))
	case perfTooMuch:
		return fmt.Sprintf("it registers at most %s for a client; ask for less with -s or --qps, or start it with a larger --max-memory",
			formatSize(int(e.limit)<<10))
	case perfTooMany:
		return fmt.Sprintf("it has at most %d queue pairs for a client; ask for less with --qps, or start it with a larger --max-qps", e.limit)
	case perfTooLong:
		return fmt.Sprintf("it serves a client for at most %d s; ask for less with -d, or start it with a larger --max-time", e.limit)
	case perfBusy:
		return "it serves as many clients as it may; try later, or start it with a larger --max-clients"
	case perfMemory:
		return "it cannot make the queues or register the memory; ask for less with -s, --depth or --qps; its own output says why: it may be its limit on locked memory (ulimit -l)"
	case perfDevice:
		return "its RDMA device cannot do that, or cannot be opened; its own output says more"
	}
	return fmt.Sprintf("reason %d", e.reason)
}

// perfRejected puts a failed connection into words that suit perf.
func perfRejected(err error, d *dialError) error {
	var r *rdmacm.RejectedError
	asked := errors.As(err, &r)
	// iWARP has no reasons: there the refusal of the TCP connection is what tells.
	if asked && (r.Reason == rdmacm.RejectNoService || r.Reason == -int32(syscall.ECONNREFUSED)) ||
		!asked && errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("nobody listens on %v (%w): start 'rdma-ping perf serve' there, or name the right port with -p", d.addr, syscall.ECONNREFUSED)
	}
	if !asked {
		return d
	}
	if h, err := parsePerf[perfHelloBody](r.PrivateData, perfKindHello); err == nil {
		return &perfRefusal{reason: h.Reason, limit: h.Limit}
	}
	if _, err := parseHello(r.PrivateData); err == nil {
		return fmt.Errorf("the server at %v is 'rdma-ping serve': perf needs 'rdma-ping perf serve'", d.addr)
	}
	return d
}

package rdmacm

import (
	"fmt"
	"syscall"
)

// RejectedError says that the peer, or the kernel on its behalf, turned a connection down.
// errors.Is finds syscall.ECONNREFUSED in it.
type RejectedError struct {
	// Reason is the code of IBTA volume 1, table 106 (enum ib_cm_rej_reason), or on
	// iWARP, where there are no reasons, a negative errno.
	Reason int32
	// PrivateData is what the peer gave to Reject. On InfiniBand and RoCE it is padded
	// with zeros to 148 bytes.
	PrivateData []byte
	// Datagram says that Reason is a status of service id resolution (IBTA volume 1, table
	// 119, enum ib_cm_sidr_status), which Connect does on datagram port spaces.
	Datagram bool
}

// The reasons that programs may want to tell apart. There are more.
const (
	RejectNoService = 8  // nobody listens on that port
	RejectStale     = 10 // the peer still knows an older connection of this queue pair
	RejectConsumer  = 28 // the peer's program said no
	RejectECE       = 35 // the peer does not support the enhanced connection options, see SetLocalECE
)

// The statuses of service id resolution that programs may want to tell apart.
const (
	RejectDatagramNoService = 1 // nobody listens on that port
	RejectDatagramConsumer  = 2 // the peer's program said no
)

// Error gives the reason in words.
func (e *RejectedError) Error() string {
	if e.Reason < 0 {
		return "connection rejected: " + syscall.Errno(-e.Reason).Error()
	}
	words := rejectReasons[:]
	if e.Datagram {
		words = rejectStatus[:]
	}
	if int(e.Reason) < len(words) && words[e.Reason] != "" {
		return fmt.Sprintf("connection rejected: %s (reason %d)", words[e.Reason], e.Reason)
	}
	return fmt.Sprintf("connection rejected: reason %d", e.Reason)
}

// Is makes a rejection look like what TCP says in its place.
func (e *RejectedError) Is(target error) bool { return target == syscall.ECONNREFUSED }

var rejectStatus = [...]string{
	1: "nobody listens on that port",
	2: "the peer's program said no",
	3: "no queue pair",
	4: "redirected",
	5: "unsupported version of the protocol",
}

var rejectReasons = [...]string{
	1:  "no queue pair",
	2:  "no end-to-end context",
	3:  "the peer is out of resources",
	4:  "the peer's time ran out",
	5:  "unsupported request",
	6:  "invalid communication id",
	7:  "invalid communication instance",
	8:  "nobody listens on that port",
	9:  "invalid transport service type",
	10: "stale connection: the peer still knows an older one of this queue pair",
	11: "no such reliable datagram domain",
	12: "invalid primary GID",
	13: "invalid primary LID",
	14: "invalid primary service level",
	15: "invalid primary traffic class",
	16: "invalid primary hop limit",
	17: "invalid primary packet rate",
	18: "invalid alternate GID",
	19: "invalid alternate LID",
	20: "invalid alternate service level",
	21: "invalid alternate traffic class",
	22: "invalid alternate hop limit",
	23: "invalid alternate packet rate",
	24: "connection manager and port redirected",
	25: "port redirected",
	26: "invalid path MTU",
	27: "the peer serves fewer RDMA READs at once",
	28: "the peer's program said no",
	29: "invalid RNR retry count",
	30: "duplicate local communication id",
	31: "invalid class version",
	32: "invalid primary flow label",
	33: "invalid alternate flow label",
	35: "the peer does not support a vendor option",
}

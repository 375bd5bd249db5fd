package main

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/rdmacm"
)

// The reasons of the metrics: few, and no others, whatever a peer says.
const (
	reasonOther       = "other"
	reasonPermission  = "permission"  // this end: nodes or credentials
	reasonNoDevice    = "no_device"   // this end: no module, device, node or interface
	reasonMemlock     = "memlock"     // this end: memory cannot be registered
	reasonLookup      = "lookup"      // the name has no address
	reasonNoRoute     = "no_route"    // the own routing table has no way
	reasonUnreachable = "unreachable" // the host does not answer
	reasonTimeout     = "timeout"     // it did not come about in dialTimeout
	reasonRefused     = "refused"     // nobody listens
	reasonRejected    = "rejected"    // the server says no

	lostTimeout      = "timeout"      // no answer in time (-W)
	lostCorrupt      = "corrupt"      // an answer with wrong contents
	lostDisconnected = "disconnected" // the connection ended while it was waited for
)

func connectReasons() []string {
	return []string{
		reasonPermission, reasonNoDevice, reasonMemlock, reasonLookup, reasonNoRoute, reasonUnreachable,
		reasonTimeout, reasonRefused, reasonRejected, reasonOther,
	}
}

func lostReasons() []string { return []string{lostTimeout, lostCorrupt, lostDisconnected} }

// connectReason says in a word why a connection did not come about. See explain.
func connectReason(err error) string {
	var rejected *rdmacm.RejectedError
	if errors.As(err, &rejected) && !nobodyListens(rejected) {
		return reasonRejected
	}
	for _, known := range []struct {
		reason string
		causes []error
	}{
		{reasonPermission, []error{discover.ErrNoPermission, syscall.EACCES, syscall.EPERM}},
		{reasonNoDevice, []error{
			errNoDevices, discover.ErrNoModule, discover.ErrNoVerbs, discover.ErrNoNode, discover.ErrWrongNode,
			discover.ErrNoDevice, discover.ErrNoInterface, rdmacm.ErrDeviceRemoved, syscall.ENODEV,
		}},
		{reasonMemlock, []error{syscall.ENOMEM}},
		{reasonRefused, []error{syscall.ECONNREFUSED}},
		{reasonNoRoute, []error{syscall.ENETUNREACH}},
		{reasonTimeout, []error{context.DeadlineExceeded, os.ErrDeadlineExceeded}},
		{reasonUnreachable, []error{syscall.EHOSTUNREACH, syscall.ETIMEDOUT}},
	} {
		for _, cause := range known.causes {
			if errors.Is(err, cause) {
				return known.reason
			}
		}
	}
	if errors.As(err, new(*net.DNSError)) {
		return reasonLookup
	}
	return reasonOther
}

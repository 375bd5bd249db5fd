package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/rdmacm"
)

// explain is the one line that a failure is reported with: what failed, why, and what to do.
// The packages below explain what the kernel says; here is added what only the program
// knows, such as what it takes to make a server listen.
func explain(err error) string {
	var d *dialError
	if errors.As(err, &d) {
		if text := d.explain(); text != "" {
			return text
		}
	}
	// The whole chain would say twice that the list of devices could not be had.
	if e := (*discover.Error)(nil); errors.Is(err, discover.ErrNoModule) && errors.As(err, &e) {
		err = e
	}
	return oneLine(err.Error())
}

// explain returns "" where the error itself says enough.
func (d *dialError) explain() string {
	var (
		rejected *rdmacm.RejectedError
		known    *rdmacm.Error
	)
	switch {
	case errors.As(d.err, &rejected):
		return d.rejected(rejected)
	case errors.Is(d.err, context.Canceled):
		return fmt.Sprintf("connect to %v: interrupted", d.addr)
	case d.source.IsValid() && errors.Is(d.err, syscall.EADDRNOTAVAIL):
		return fmt.Sprintf("connect to %v from %v: no interface in this network namespace has the address %[2]v", d.addr, d.source)
	case errors.As(d.err, &known) && known.Hint != "":
		return "" // knows better
	case errors.Is(d.err, syscall.ECONNREFUSED): // iWARP, where it was TCP that was refused
		return d.nobody(syscall.ECONNREFUSED)
	case errors.Is(d.err, syscall.ENETUNREACH), errors.Is(d.err, syscall.EHOSTUNREACH):
		return fmt.Sprintf("%s; is it the right address, and the interface up? see: ip route get %v", oneLine(d.Error()), d.addr.Addr())
	case errors.Is(d.err, context.DeadlineExceeded), errors.Is(d.err, syscall.ETIMEDOUT):
		return fmt.Sprintf("%s; is the host up, and UDP port 4791 (RoCE) not filtered?", oneLine(d.Error()))
	}
	return ""
}

func (d *dialError) rejected(r *rdmacm.RejectedError) string {
	if nobodyListens(r) {
		return d.nobody(r)
	}
	h, err := parseHello(r.PrivateData)
	if err != nil || h.kind != kindReject {
		return ""
	}
	return fmt.Sprintf("the server at %v refused: %s", d.addr, h.refusal())
}

// nobodyListens: iWARP has no reasons, there the refusal of the TCP connection is what tells.
func nobodyListens(r *rdmacm.RejectedError) bool {
	return r.Reason == rdmacm.RejectNoService || r.Reason == -int32(syscall.ECONNREFUSED)
}

func (d *dialError) nobody(why error) string {
	return fmt.Sprintf("nobody listens on %v (%v): start 'rdma-ping serve' or 'rping -s' there, or name the right port with -p", d.addr, why)
}

// refusal is the reason of a reject in words.
func (h *hello) refusal() string {
	switch h.reason {
	case reasonProtocol:
		return "it could not read our request; are both sides of the same version?"
	case reasonVersion:
		return "it speaks another version of the protocol; use the same rdma-ping on both sides"
	case reasonTooLarge:
		return fmt.Sprintf("its messages have at most %s; ask for less with -s, or start it with a larger --max-size", formatSize(int(h.size)))
	case reasonBusy:
		return "it serves as many clients as it may; try later, or start it with a larger --max-clients"
	case reasonMemory:
		return "it cannot register memory of that size; ask for less with -s; its own output says why: it may be its limit on locked memory (ulimit -l)"
	case reasonDevice:
		return "it cannot open the RDMA device of that address; its own output says why, and so does 'rdma-ping devices' there"
	}
	return fmt.Sprintf("reason %d", h.reason)
}

// oneLine joins the lines that errors.Join makes.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' }), "; ")
}

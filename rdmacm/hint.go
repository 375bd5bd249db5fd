package rdmacm

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"

	"github.com/pureverbs/rdma/uverbs"
)

// The operations, as errors name them.
const (
	opOpen     = "open event channel"
	opCreateID = "create id"
	opBind     = "bind"
	opResolve  = "resolve address"
	opRoute    = "resolve route"
	opListen   = "listen"
	opQP       = "create queue pair"
	opConnect  = "connect"
	opAccept   = "accept"
	opReject   = "reject"
	opDisc     = "disconnect"
	opDevice   = "find device"
	opConn     = "connection"
	opEvent    = "wait for event"
	opMigrate  = "migrate id"
	opOption   = "set option"
	opControl  = "set up id"
	opPath     = "query path"
	opJoin     = "join multicast group"
	opLeave    = "leave multicast group"
	opService  = "resolve service"
	opWrite    = "write event"
)

// explain makes an Error of what the kernel said, with a hint where an errno alone would
// send the reader to the wrong place.
func (c *EventChannel) explain(op string, addr netip.AddrPort, err error) error {
	return c.hinted(wrap(op, addr, err), addr)
}

func (c *EventChannel) hinted(err error, addr netip.AddrPort) error {
	if err == nil {
		return nil // without a place for what errors.As finds
	}
	var (
		e     *Error
		below *uverbs.Error // explains itself
	)
	if errors.As(err, &e) && e.Hint == "" && !errors.As(err, &below) {
		e.Hint = c.hint(e, addr)
	}
	return err
}

func (c *EventChannel) hint(e *Error, addr netip.AddrPort) string {
	var errno syscall.Errno
	if !errors.As(e.Err, &errno) {
		return ""
	}
	switch errno {
	case syscall.EACCES:
		if e.Op == opBind && addr.Port() != 0 && addr.Port() < 1024 {
			return "a port below 1024 needs CAP_NET_BIND_SERVICE"
		}
		return "the kernel serves rdma_cm only with the credentials that opened it, and after a change of user or " +
			"group ids each thread of a Go program has its own: change them before the program starts, or start it again"
	case syscall.EINVAL:
		if e.Op == opRoute || e.Op == opConnect && !errors.Is(e.Err, ErrDisconnected) {
			return "the address has to be resolved before the route, and both before connecting"
		}
	case syscall.ENODEV:
		return c.deviceHint()
	case syscall.EADDRNOTAVAIL:
		if !addr.IsValid() || e.Op == opConnect {
			return ""
		}
		if addr.Addr().IsUnspecified() && addr.Port() != 0 {
			return portTaken // the kernel's word for it where either address is a wildcard
		}
		return "no interface in this network namespace has that address"
	case syscall.EADDRINUSE:
		return portTaken
	case syscall.ENXIO:
		return "the device was removed"
	case syscall.ETIMEDOUT:
		if e.Op == opResolve {
			return "nobody answered ARP or neighbour discovery for it"
		}
	}
	return ""
}

// deviceHint says why no device serves an address: there is none at all, none of them has
// an interface here, or they serve other interfaces.
func (c *EventChannel) deviceHint() string {
	devs, err := c.devs.list()
	switch {
	case err != nil:
		return err.Error()
	case len(devs) == 0:
		return noDevice
	}
	var served []string
	for _, d := range devs {
		if d.Reachable() == nil {
			served = append(served, d.Name()+" on "+strings.Join(d.NetDevs(), ", "))
		}
	}
	if len(served) == 0 {
		return devs[0].Reachable().Error()
	}
	return "the address does not belong to an RDMA interface, or that interface is down; there is " + strings.Join(served, "; ")
}

const portTaken = "another id listens on that port; on iWARP a TCP server counts as well"

const noDevice = "this system has no RDMA device; one in software, as root: rdma link add rxe0 type rxe netdev eth0"

// anyDevice returns nil if there is a device that can be used, otherwise the reason. If it
// has an interface in this network namespace does not matter: one may come.
func anyDevice(devs []*uverbs.Device) error {
	if len(devs) == 0 {
		return &Error{Op: opListen, Err: syscall.ENODEV, Hint: noDevice}
	}
	var first error
	for _, d := range devs {
		err := d.Usable()
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return &Error{Op: opListen, Err: first}
}

package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/pureverbs/rdma/rdmacm"
)

// loopbackTimeout is ample: a connection to itself takes a millisecond.
const loopbackTimeout = 10 * time.Second

// checkLoopback makes a connection from this process to itself, over the device. All else may
// look right and nothing go through: rxe of Linux 6.1, for one, stays deaf for good after a
// connection was tried while its port was down.
func (e *examination) checkLoopback() {
	p, addr := e.ownAddress()
	if p == nil {
		return
	}
	err := e.connectToItself(addr)
	if err == nil {
		e.check(true, "loopback", p.name(), fmt.Sprintf("a connection from %v to itself works", addr))
		return
	}
	what := fmt.Sprintf("all looks right, and yet a connection from %v to itself does not come about: %v", addr, err)
	e.check(false, "loopback", p.name(), what)
	f := Finding{Severity: Error, Code: NoLoopback, Object: p.object(), What: what, Why: NoLoopback.why()}
	if driver := p.dev.Driver(); (driver == "rxe" || driver == "siw") && len(p.netdevs) > 0 {
		f.Fixes = append(f.Fixes, Fix{e.facts.asRoot(),
			fmt.Sprintf("rdma link delete %[1]s && rdma link add %[1]s type %[2]s netdev %[3]s", p.name(), driver, p.netdevs[0])})
	}
	f.Fixes = append(f.Fixes, Fix{e.facts.asRoot(), fmt.Sprintf("dmesg | grep -i -e %s -e infiniband  # what does the kernel say?", p.name())})
	e.find(f)
}

// ownAddress is the address that leads to Addr, or one of the first device that is well.
func (e *examination) ownAddress() (*patient, netip.Addr) {
	for _, p := range e.devices {
		switch {
		case p.ctx == nil || p.progress() < len(order):
		case e.from.IsValid():
			if p == e.through {
				return p, e.from
			}
		default:
			if a := e.addressOf(p); a.IsValid() {
				return p, a
			}
		}
	}
	return nil, netip.Addr{}
}

func (e *examination) addressOf(p *patient) netip.Addr {
	for i := range p.gids {
		if p.dev.Protocol() == "roce" && e.judgeGID(&p.gids[i]).used {
			return p.gids[i].GID.Addr()
		}
	}
	for _, name := range p.netdevs {
		i := e.interfaceNamed(name)
		if i == nil || p.dev.Protocol() == "roce" {
			continue
		}
		for _, a := range i.Addrs {
			if !a.Addr().IsLinkLocalUnicast() {
				return a.Addr()
			}
		}
	}
	return netip.Addr{}
}

// connectToItself is a client and a server.
func (e *examination) connectToItself(addr netip.Addr) error {
	ctx, cancel := context.WithTimeout(e.ctx, loopbackTimeout)
	defer cancel()
	o := &rdmacm.Options{System: []rdmacm.Option{e.cmOptions()}}
	l, err := rdmacm.Listen(ctx, netip.AddrPortFrom(addr, 0).String(), o)
	if err != nil {
		return err
	}
	defer l.Close()
	accepted := make(chan *rdmacm.Conn, 1)
	go func() {
		c, _ := l.Accept(ctx) // if it fails, so does Dial
		accepted <- c
	}()
	c, err := rdmacm.Dial(ctx, l.Addr().String(), o)
	if err != nil {
		cancel()
	}
	if s := <-accepted; s != nil {
		defer s.Close()
	}
	if c != nil {
		c.Close()
	}
	return err
}

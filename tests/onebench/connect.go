//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

const (
	slots     = 16 // the longest chain
	slotSize  = 4096
	port      = 7190
	resources = 16
	patience  = 2 * time.Second
)

// end is one end of the connection.
type end struct {
	qp  *uverbs.QP
	cq  *uverbs.CQ
	mr  *uverbs.MR
	mem []byte // slots of slotSize bytes
}

// pair is a connection of this process with itself. It lasts as long as the process.
type pair struct {
	client, server end
	pd             *uverbs.PD
	iWARP          bool
	sends          []uverbs.SendWR
	recvs          []uverbs.RecvWR
	wcs            []uverbs.WC
}

func (p *pair) open(e *end, id *rdmacm.ID) error {
	ctx, err := id.Context()
	if err != nil {
		return err
	}
	if p.pd == nil {
		if p.pd, err = ctx.AllocPD(); err != nil {
			return err
		}
	}
	p.iWARP = ctx.Device().Protocol() == "iw"
	if e.cq, err = ctx.CreateCQ(2*slots, nil); err != nil {
		return err
	}
	e.qp, err = id.CreateQP(p.pd, &uverbs.QPInitAttr{
		SendCQ: e.cq, RecvCQ: e.cq, Cap: uverbs.QPCap{MaxSendWR: slots, MaxRecvWR: slots, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return err
	}
	access := uverbs.AccessLocalWrite | uverbs.AccessRemoteWrite | uverbs.AccessRemoteRead
	if !p.iWARP {
		access |= uverbs.AccessRemoteAtomic
	}
	if e.mr, err = p.pd.AllocMR(slots*slotSize, access); err != nil {
		return err
	}
	e.mem = e.mr.Bytes()
	return nil
}

// connect makes the connection, on one event channel.
func connect(ctx context.Context, addr netip.AddrPort, opts ...rdmacm.Option) (*pair, error) {
	ch, err := rdmacm.NewEventChannel(opts...)
	if err != nil {
		return nil, err
	}
	if err := call(ch, addr); err != nil {
		return nil, err
	}
	p := &pair{
		sends: make([]uverbs.SendWR, slots), recvs: make([]uverbs.RecvWR, slots), wcs: make([]uverbs.WC, slots),
	}
	for up := 0; up < 2; {
		ev, err := ch.NextEvent(ctx)
		if err == nil {
			err = ev.Err
		}
		if err == nil {
			err = p.step(ev, &up)
		}
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

func call(ch *rdmacm.EventChannel, addr netip.AddrPort) error {
	listener, err := ch.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		return err
	}
	if err := listener.Bind(addr); err != nil {
		return err
	}
	if err := listener.Listen(1); err != nil {
		return err
	}
	caller, err := ch.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		return err
	}
	return caller.ResolveAddr(netip.AddrPort{}, addr, patience)
}

func (p *pair) step(ev *rdmacm.Event, up *int) error {
	param := rdmacm.ConnParam{ResponderResources: resources, InitiatorDepth: resources}
	switch ev.Type {
	case rdmacm.EventAddrResolved:
		return ev.ID.ResolveRoute(patience)
	case rdmacm.EventRouteResolved:
		if err := p.open(&p.client, ev.ID); err != nil {
			return err
		}
		return ev.ID.Connect(param)
	case rdmacm.EventConnectRequest:
		if err := p.open(&p.server, ev.ID); err != nil {
			return err
		}
		return ev.ID.Accept(param)
	case rdmacm.EventEstablished:
		*up++
		return nil
	}
	return fmt.Errorf("connect: %v", ev.Type)
}

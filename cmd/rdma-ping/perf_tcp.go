package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// serveTCP serves clients over TCP.
func (s *perfService) serveTCP(ctx context.Context, addrs []netip.AddrPort) error {
	var (
		config net.ListenConfig
		ln     net.Listener
		err    error
	)
	for _, addr := range addrs { // the wildcard of IPv6 takes IPv4 too, where there is IPv6
		if ln, err = config.Listen(ctx, "tcp", addr.String()); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	s.announce(ln.Addr().String() + " (TCP)")
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			s.clients.Wait()
			return err
		}
		if !s.enter(func() { s.handleTCP(ctx, conn) }) {
			s.turnAway(conn, s.busy())
		}
	}
	s.clients.Wait()
	s.print("stopped, %d clients served", s.served.Load())
	return nil
}

// turnAway refuses a client over TCP.
func (s *perfService) turnAway(conn net.Conn, r *perfRefusal) {
	conn.SetDeadline(time.Now().Add(time.Second)) //nolint:errcheck // the write fails too
	_, err := conn.Write(perfMessage(perfKindRefuse, perfRefuseBody{Reason: r.reason, Limit: r.limit}))
	s.print("%v %s", conn.RemoteAddr(), oneLine(errors.Join(r, err, conn.Close()).Error()))
}

func (s *perfService) handleTCP(ctx context.Context, conn net.Conn) {
	control := &tcpControl{conn}
	dev, err := s.app.perfDevice(s.opts.device, control.local(), s.opts.gidIndex)
	if err != nil {
		s.turnAway(conn, &perfRefusal{reason: perfDevice, why: oneLine(err.Error())})
		return
	}
	s.attend(ctx, conn.RemoteAddr().String(), &perfSession{dev: dev, gidIndex: s.opts.gidIndex}, control)
	if err := dev.Close(); err != nil {
		s.print("%v: %s", conn.RemoteAddr(), oneLine(err.Error()))
	}
}

// perfDevice opens a device for queue pairs that are connected by hand: the one of a name,
// or the one that has an address.
func (a *app) perfDevice(name string, addr netip.Addr, index int) (*uverbs.Context, error) {
	devs, err := uverbs.Devices(a.verbsOptions()...)
	if err != nil {
		return nil, err
	}
	var lacking error
	for _, d := range devs {
		if d.Name() == name {
			return d.Open()
		}
		if name != "" || d.Usable() != nil {
			continue
		}
		if err := (&perfPlan{transport: perfRC}).supported(d); err != nil {
			lacking = err
			continue
		}
		c, err := d.Open()
		if err != nil {
			continue
		}
		if _, err := findPerfWay(c, addr, index); err == nil {
			return c, nil
		}
		c.Close()
	}
	if name == "" && lacking != nil {
		return nil, lacking
	}
	if name != "" {
		return nil, noDevice(name)
	}
	return nil, fmt.Errorf("no RDMA device has the address %v: name one with --device, and its GID with --gid-index", addr)
}

package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/pureverbs/rdma/uverbs"
)

// perfWay is where queue pairs that are connected by hand begin: a port of the own device
// and an entry of its GID table.
type perfWay struct {
	gid   uverbs.GIDEntry
	mtu   uverbs.MTU
	lid   uint16
	reads uint8 // RDMA READs and atomics at once
}

// findPerfWay chooses the entry of an address, or, if index is not -1, that of port 1.
func findPerfWay(c *uverbs.Context, addr netip.Addr, index int) (*perfWay, error) {
	way := new(perfWay)
	table, err := c.GIDTable()
	if err != nil {
		return nil, err
	}
	if index >= 0 {
		way.gid, err = c.QueryGID(1, index)
	} else {
		err = errors.New("the device has no port")
		for port := 1; port <= c.Device().NumPorts() && err != nil; port++ {
			way.gid, err = uverbs.FindGID(table, port, addr.Unmap().WithZone(""))
		}
	}
	if err != nil {
		return nil, err
	}
	port, err := c.QueryPort(uint8(way.gid.Port))
	if err != nil {
		return nil, err
	}
	dev, err := c.QueryDevice()
	if err != nil {
		return nil, err
	}
	way.mtu, way.lid, way.reads = port.ActiveMTU, port.LID, uint8(min(dev.MaxQPRDAtom, dev.MaxQPInitRDAtom, 16))
	return way, nil
}

// init makes a queue pair in state INIT, with its receives.
func (l *perfLane) init(way *perfWay) (err error) {
	l.qp, err = l.pd.CreateQP(&uverbs.QPInitAttr{Type: l.plan.transport.qpType(), SendCQ: l.cq, RecvCQ: l.cq, Cap: l.plan.caps()})
	if err != nil {
		return err
	}
	l.describe(way)
	attr := &uverbs.QPAttr{State: uverbs.StateInit, PortNum: uint8(way.gid.Port), QKey: l.me.QKey}
	mask := uverbs.QPAttrState | uverbs.QPAttrPKeyIndex | uverbs.QPAttrPort
	if l.plan.transport == perfUD {
		mask |= uverbs.QPAttrQKey
	} else {
		mask |= uverbs.QPAttrAccessFlags
		if l.grants() {
			attr.AccessFlags = l.plan.op.remote()
		}
	}
	if err := l.qp.Modify(attr, mask); err != nil {
		return err
	}
	return l.fill()
}

// connect brings the queue pair to RTS. The kernel may look for the peer's link-layer
// address meanwhile, for about a second.
func (l *perfLane) connect(way *perfWay) error {
	mtu := min(way.mtu, uverbs.MTU(l.peer.MTU))
	if mtu.Bytes() == 0 {
		return fmt.Errorf("the peer's MTU has code %d, which is none", l.peer.MTU)
	}
	if l.peer.GID.Addr().Is4() != way.gid.GID.Addr().Is4() {
		return fmt.Errorf("the peer's GID is %v, ours %v: choose the same family with --gid-index", l.peer.GID, way.gid.GID)
	}
	if l.plan.transport == perfUD && l.plan.size > mtu.Bytes() {
		return fmt.Errorf("a datagram carries at most %d bytes here, the MTU: ask for less with -s", mtu.Bytes())
	}
	to := uverbs.AHAttr{
		DGID: l.peer.GID, SGIDIndex: uint8(way.gid.Index), IsGlobal: true, HopLimit: 64, DLID: l.peer.LID, PortNum: uint8(way.gid.Port),
	}
	reads := max(1, min(way.reads, l.peer.Reads))
	rtr := uverbs.QPAttr{
		State: uverbs.StateRTR, AH: to, PathMTU: mtu, DestQPNum: l.peer.QPN, RQPSN: l.peer.PSN,
		MaxDestRDAtomic: reads, MinRNRTimer: uverbs.DefaultMinRNRTimer,
	}
	rts := uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: l.me.PSN, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: reads}
	toRTR, toRTS := perfSteps(l.plan.transport)
	if err := l.qp.Modify(&rtr, toRTR); err != nil {
		return err
	}
	if err := l.qp.Modify(&rts, toRTS); err != nil {
		return err
	}
	if l.plan.transport != perfUD {
		return nil
	}
	var err error
	if l.ah, err = l.pd.CreateAH(&to); err == nil {
		l.dest = l.ah.Dest(l.peer.QPN, l.peer.QKey)
	}
	return err
}

// perfSteps are the attributes that the last two steps to RTS need.
func perfSteps(t perfTransport) (toRTR, toRTS uverbs.QPAttrMask) {
	toRTR, toRTS = uverbs.QPAttrState, uverbs.QPAttrState|uverbs.QPAttrSQPSN
	if t != perfUD {
		toRTR |= uverbs.QPAttrAV | uverbs.QPAttrPathMTU | uverbs.QPAttrDestQPN | uverbs.QPAttrRQPSN
	}
	if t == perfRC {
		toRTR |= uverbs.QPAttrMaxDestRDAtomic | uverbs.QPAttrMinRNRTimer
		toRTS |= uverbs.QPAttrTimeout | uverbs.QPAttrRetryCnt | uverbs.QPAttrRNRRetry | uverbs.QPAttrMaxQPRDAtomic
	}
	return toRTR, toRTS
}

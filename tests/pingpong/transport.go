package main

import (
	"github.com/pureverbs/rdma/tests/pingpong/peer"
	"github.com/pureverbs/rdma/uverbs"
)

// transport is what differs between the four programs.
type transport struct {
	typ     uverbs.QPType
	shared  bool // all queue pairs receive from one shared queue
	pairs   int  // queue pairs, unless told otherwise
	slots   int  // addresses that each side sends, whether there are as many pairs or not
	size    int  // bytes of a message, unless told otherwise
	grh     int  // bytes that the device writes before a message
	connect func(e *end, p *pair, to address) error
}

var transports = map[string]*transport{
	"rc":  {typ: uverbs.QPTypeRC, pairs: 1, slots: 1, size: 4096, connect: connectRC},
	"uc":  {typ: uverbs.QPTypeUC, pairs: 1, slots: 1, size: 4096, connect: connectUC},
	"ud":  {typ: uverbs.QPTypeUD, pairs: 1, slots: 1, size: 1024, grh: uverbs.GRHSize, connect: connectUD},
	"srq": {typ: uverbs.QPTypeRC, shared: true, pairs: 16, slots: 256, size: 4096, connect: connectRC},
}

// maxPairs: the C program leaves the last slot empty.
func (t *transport) maxPairs() int {
	if t.shared {
		return t.slots - 1
	}
	return 1
}

// qkey is that of all datagram queue pairs of the C program.
const qkey = 0x11111111

func (t *transport) toInit(q *uverbs.QP) error {
	mask := uverbs.QPAttrState | uverbs.QPAttrPKeyIndex | uverbs.QPAttrPort
	if t.typ == uverbs.QPTypeUD {
		mask |= uverbs.QPAttrQKey
	} else {
		mask |= uverbs.QPAttrAccessFlags
	}
	return q.Modify(&uverbs.QPAttr{State: uverbs.StateInit, PortNum: 1, QKey: qkey}, mask)
}

func connectRC(e *end, p *pair, to address) error {
	err := p.qp.Modify(&uverbs.QPAttr{
		State: uverbs.StateRTR, PathMTU: uverbs.MTU1024, DestQPNum: to.qpn, RQPSN: to.psn, AH: e.way(to, 1),
		MaxDestRDAtomic: 1, MinRNRTimer: uverbs.DefaultMinRNRTimer,
	}, connected|uverbs.QPAttrMaxDestRDAtomic|uverbs.QPAttrMinRNRTimer)
	if err != nil {
		return err
	}
	return p.qp.Modify(&uverbs.QPAttr{
		State: uverbs.StateRTS, SQPSN: p.psn, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: 1,
	}, sending|uverbs.QPAttrTimeout|uverbs.QPAttrRetryCnt|uverbs.QPAttrRNRRetry|uverbs.QPAttrMaxQPRDAtomic)
}

func connectUC(e *end, p *pair, to address) error {
	err := p.qp.Modify(&uverbs.QPAttr{
		State: uverbs.StateRTR, PathMTU: uverbs.MTU1024, DestQPNum: to.qpn, RQPSN: to.psn, AH: e.way(to, 1),
	}, connected)
	if err != nil {
		return err
	}
	return p.qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: p.psn}, sending)
}

func connectUD(e *end, p *pair, to address) error {
	if err := p.qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTR}, uverbs.QPAttrState); err != nil {
		return err
	}
	if err := p.qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: p.psn}, sending); err != nil {
		return err
	}
	way := e.way(to, 64)
	ah, err := e.pd.CreateAH(&way)
	if ah, err = peer.Own(&e.owned, ah, err); err != nil {
		return err
	}
	p.sends[0].Dest = ah.Dest(to.qpn, qkey)
	return nil
}

const (
	connected = uverbs.QPAttrState | uverbs.QPAttrAV | uverbs.QPAttrPathMTU | uverbs.QPAttrDestQPN | uverbs.QPAttrRQPSN
	sending   = uverbs.QPAttrState | uverbs.QPAttrSQPSN
)

func (e *end) way(to address, hops uint8) uverbs.AHAttr {
	return uverbs.AHAttr{DGID: to.gid, SGIDIndex: uint8(e.gidIndex), IsGlobal: true, HopLimit: hops, PortNum: 1}
}

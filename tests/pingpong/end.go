package main

import (
	"fmt"

	"github.com/pureverbs/rdma/uverbs"
)

// end is this side's queue pair and what it stands on.
type end struct {
	ctx      *uverbs.Context
	pd       *uverbs.PD
	ch       *uverbs.CompChannel
	cq       *uverbs.CQ
	qp       *uverbs.QP
	mr       *uverbs.MR
	gid      uverbs.GID
	gidIndex int
	sends    []uverbs.SendWR
	recvs    []uverbs.RecvWR
}

func open(o options) (e *end, err error) {
	e = &end{gidIndex: o.gidIndex}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	dev, err := find(o.device)
	if err != nil {
		return nil, err
	}
	if e.ctx, err = dev.Open(); err != nil {
		return nil, err
	}
	if e.pd, err = e.ctx.AllocPD(); err != nil {
		return nil, err
	}
	if e.mr, err = e.pd.AllocMR(o.size, uverbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	if e.ch, err = e.ctx.NewCompChannel(); err != nil {
		return nil, err
	}
	if e.cq, err = e.ctx.CreateCQ(o.depth+1, e.ch); err != nil {
		return nil, err
	}
	e.qp, err = e.pd.CreateQP(&uverbs.QPInitAttr{SendCQ: e.cq, Cap: uverbs.QPCap{
		MaxSendWR: 1, MaxRecvWR: uint32(o.depth), MaxSendSGE: 1, MaxRecvSGE: 1,
	}})
	if err != nil {
		return nil, err
	}
	e.prepare(o)
	if err := e.ownGID(); err != nil {
		return nil, err
	}
	return e, e.qp.Modify(&uverbs.QPAttr{State: uverbs.StateInit, PortNum: 1},
		uverbs.QPAttrState|uverbs.QPAttrPKeyIndex|uverbs.QPAttrPort|uverbs.QPAttrAccessFlags)
}

func find(name string) (*uverbs.Device, error) {
	devs, err := uverbs.Devices()
	if err != nil {
		return nil, err
	}
	for _, d := range devs {
		if name == "" || d.Name() == name {
			return d, nil
		}
	}
	return nil, fmt.Errorf("no device %q", name)
}

// prepare makes the work requests once: posting them costs no allocation.
func (e *end) prepare(o options) {
	sgl := []uverbs.SGE{e.mr.SGE(0, o.size)}
	e.sends = []uverbs.SendWR{{ID: sendID, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: sgl}}
	e.recvs = make([]uverbs.RecvWR, o.depth)
	for i := range e.recvs {
		e.recvs[i] = uverbs.RecvWR{ID: recvID, SGL: sgl}
	}
}

func (e *end) ownGID() error {
	table, err := e.ctx.GIDTable()
	if err != nil {
		return err
	}
	for _, entry := range table {
		if entry.Port == 1 && entry.Index == e.gidIndex {
			e.gid = entry.GID
			return nil
		}
	}
	return fmt.Errorf("entry %d of the GID table is empty", e.gidIndex)
}

func (e *end) connect(me, peer address) error {
	err := e.qp.Modify(&uverbs.QPAttr{
		State: uverbs.StateRTR, PathMTU: uverbs.MTU1024, DestQPNum: peer.qpn, RQPSN: peer.psn, MaxDestRDAtomic: 1,
		MinRNRTimer: uverbs.DefaultMinRNRTimer,
		AH:          uverbs.AHAttr{DGID: peer.gid, SGIDIndex: uint8(e.gidIndex), IsGlobal: true, HopLimit: 1, PortNum: 1},
	}, uverbs.QPAttrState|uverbs.QPAttrAV|uverbs.QPAttrPathMTU|uverbs.QPAttrDestQPN|uverbs.QPAttrRQPSN|
		uverbs.QPAttrMaxDestRDAtomic|uverbs.QPAttrMinRNRTimer)
	if err != nil {
		return err
	}
	return e.qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, SQPSN: me.psn, MaxRDAtomic: 1},
		uverbs.QPAttrState|uverbs.QPAttrTimeout|uverbs.QPAttrRetryCnt|uverbs.QPAttrRNRRetry|uverbs.QPAttrSQPSN|
			uverbs.QPAttrMaxQPRDAtomic)
}

func (e *end) refill(n int) error {
	_, err := e.qp.PostRecv(e.recvs[:n])
	return err
}

func (e *end) send() error {
	_, err := e.qp.PostSend(e.sends)
	return err
}

// close undoes open, also a half one.
func (e *end) close() {
	if e.qp != nil {
		e.qp.Close()
	}
	if e.cq != nil {
		e.cq.Close()
	}
	if e.ch != nil {
		e.ch.Close()
	}
	if e.mr != nil {
		e.mr.Close()
	}
	if e.pd != nil {
		e.pd.Close()
	}
	if e.ctx != nil {
		e.ctx.Close()
	}
}

//go:build linux

package verbstest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// piece is some of a region, or nothing, or rubbish.
func (w *world) piece(r *rand.Rand) (sgl []uverbs.SGE, mr *uverbs.MR) {
	mr, ok := pickAny[*uverbs.MR](w, r, kindMR)
	if !ok || r.IntN(8) == 0 {
		return nil, mr
	}
	n := r.IntN(mr.Len() + 1)
	return []uverbs.SGE{mr.SGE(r.IntN(mr.Len()-n+1), n)}, mr
}

// request is a send request of any kind; much of it fails at the peer.
func (w *world) request(r *rand.Rand) uverbs.SendWR {
	wr := uverbs.SendWR{ID: r.Uint64(), Opcode: uverbs.Opcode(r.IntN(16)), Flags: uverbs.SendFlags(r.IntN(8)), Imm: r.Uint32()}
	if r.IntN(3) > 0 {
		wr.Opcode = []uverbs.Opcode{uverbs.OpSend, uverbs.OpRDMAWrite, uverbs.OpRDMARead}[r.IntN(3)]
	}
	if r.IntN(4) == 0 {
		wr.Flags, wr.Inline = wr.Flags|uverbs.SendInline, [][]byte{make([]byte, r.IntN(70))}
	} else {
		wr.SGL, _ = w.piece(r)
	}
	if _, mr := w.piece(r); mr != nil {
		wr.RemoteAddr, wr.RKey, wr.InvKey = mr.Addr(), mr.RKey(), mr.RKey()
	}
	if wr.Opcode == uverbs.OpCompareSwap || wr.Opcode == uverbs.OpFetchAdd || wr.Opcode == uverbs.OpAtomicWrite {
		if _, mr := w.piece(r); mr != nil && mr.Len() >= 8 {
			wr.SGL, wr.Inline, wr.Flags = []uverbs.SGE{mr.SGE(0, 8)}, nil, wr.Flags&^uverbs.SendInline
		}
	}
	if ah, ok := pickAny[*uverbs.AH](w, r, kindAH); ok {
		if qp, ok := pickAny[*uverbs.QP](w, r, kindQP); ok {
			wr.Dest = ah.Dest(qp.Num(), qkey)
		}
	}
	return wr
}

func (w *world) send(r *rand.Rand) error {
	qp, ok := pickAny[*uverbs.QP](w, r, kindQP)
	if !ok {
		return errNothing
	}
	wrs := make([]uverbs.SendWR, 1+r.IntN(4))
	for i := range wrs {
		wrs[i] = w.request(r)
	}
	n, err := qp.PostSend(wrs)
	if err == nil && n != len(wrs) {
		return fmt.Errorf("posted %d of %d without an error", n, len(wrs))
	}
	return err
}

func (w *world) build(r *rand.Rand) error {
	qp, ok := pickAny[*uverbs.QP](w, r, kindQP)
	if !ok {
		return errNothing
	}
	sgl, mr := w.piece(r)
	bd := qp.StartSend()
	for range r.IntN(4) {
		switch {
		case mr != nil && r.IntN(2) == 0:
			bd.Write(1, uverbs.SendSignaled, mr.Addr(), mr.RKey()).SGL(sgl)
		default:
			clear(bd.Send(2, 0).InlineRoom(r.IntN(40)))
		}
	}
	if r.IntN(3) == 0 {
		bd.Abort()
		return nil
	}
	return second(bd.Complete())
}

func (w *world) recv(r *rand.Rand) error {
	wrs := make([]uverbs.RecvWR, 1+r.IntN(4))
	for i := range wrs {
		wrs[i].ID = r.Uint64()
		wrs[i].SGL, _ = w.piece(r)
	}
	if srq, ok := pickAny[*uverbs.SRQ](w, r, kindSRQ); ok && r.IntN(3) == 0 {
		return second(srq.PostRecv(wrs))
	}
	qp, ok := pickAny[*uverbs.QP](w, r, kindQP)
	if !ok {
		return errNothing
	}
	return second(qp.PostRecv(wrs))
}

func (w *world) query(r *rand.Rand) error {
	switch r.IntN(4) {
	case 0:
		if qp, ok := pickAny[*uverbs.QP](w, r, kindQP); ok {
			return second(qp.Query(1<<21 - 1))
		}
	case 1:
		if srq, ok := pickAny[*uverbs.SRQ](w, r, kindSRQ); ok {
			return second(srq.Query())
		}
	case 2:
		if c, ok := pickAny[*uverbs.Context](w, r, kindContext); ok {
			return second(c.QueryDevice())
		}
	}
	if c, ok := pickAny[*uverbs.Context](w, r, kindContext); ok {
		return second(c.QueryPort(1))
	}
	return errNothing
}

func (w *world) bind(r *rand.Rand) error {
	mw, ok := pickAny[*uverbs.MW](w, r, kindMW)
	qp, ok2 := pickAny[*uverbs.QP](w, r, kindQP)
	_, mr := w.piece(r)
	if !ok || !ok2 || mr == nil {
		return errNothing
	}
	if mw.Type() == uverbs.MWType1 {
		return mw.Bind(qp, 1, uverbs.SendSignaled, mr, 0, 1+r.IntN(mr.Len()), uverbs.AccessRemoteRead)
	}
	b, err := mw.Prepare(mr, 0, 1+r.IntN(mr.Len()), uverbs.IncRKey(mw.RKey()), uverbs.AccessRemoteWrite)
	if err != nil {
		return err
	}
	return second(qp.PostSend([]uverbs.SendWR{{Opcode: uverbs.OpBindMW, Bind: &b}}))
}

// rereg moves a region of its own, which nobody else uses, to another domain and back.
func (w *world) rereg(r *rand.Rand) error {
	from, ok := pickAny[*uverbs.PD](w, r, kindPD)
	to, ok2 := pickAny[*uverbs.PD](w, r, kindPD)
	if !ok || !ok2 {
		return errNothing
	}
	mr, err := from.AllocMR(4096, fullAccess)
	if err != nil {
		return err
	}
	err = mr.Reregister(uverbs.ReregPD, to, nil, 0)
	if err == nil {
		err = mr.Reregister(uverbs.ReregPD|uverbs.ReregAccess, from, nil, uverbs.AccessRemoteRead)
	}
	return errors.Join(err, mr.Close())
}

// talk is a conversation between two queue pairs that nobody else has, on a domain and a
// completion queue that others may have: every byte is checked.
func (w *world) talk(r *rand.Rand) error {
	if !w.u.byHand(w.t) {
		return nil // connections of the connection manager have tests of their own
	}
	c, err := w.u.Device(w.t).Open()
	if err != nil {
		return err
	}
	pd, err := c.AllocPD()
	if err != nil {
		return err
	}
	cq, err := c.CreateCQ(64, nil)
	if err != nil {
		return err
	}
	var ends [2]talker
	for i := range ends {
		ends[i].cq = cq
		ends[i].qp, err = pd.CreateQP(&uverbs.QPInitAttr{SendCQ: cq, Cap: uverbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}})
		if err != nil {
			return err
		}
		if ends[i].mr, err = pd.AllocMR(4096, fullAccess); err != nil {
			return err
		}
	}
	for i := range ends {
		if err := ends[i].connect(w, ends[1-i].qp.Num()); err != nil {
			return err
		}
	}
	for i := range 5 {
		if err := say(r, &ends[i%2], &ends[1-i%2]); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	all := []closer{ends[0].qp, ends[1].qp, ends[0].mr, ends[1].mr, cq}
	for len(all) > 0 {
		i := r.IntN(len(all))
		if all[i].Close() == nil {
			all = append(all[:i], all[i+1:]...)
		}
	}
	if err := pd.Close(); err != nil {
		return err
	}
	return c.Close()
}

type talker struct {
	qp *uverbs.QP
	cq *uverbs.CQ
	mr *uverbs.MR
}

func (e *talker) connect(w *world, peer uint32) error {
	attr, err := w.way(e.qp.PD().Context())
	if err != nil {
		return err
	}
	for _, st := range steps(uverbs.QPTypeRC) {
		if err := e.qp.Modify(&uverbs.QPAttr{
			State: st.to, PortNum: 1, AccessFlags: fullAccess, PathMTU: uverbs.MTU1024, DestQPNum: peer, MaxDestRDAtomic: 2,
			MaxRDAtomic: 2, MinRNRTimer: 1, AH: attr, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
		}, st.required); err != nil {
			return err
		}
	}
	return nil
}

func say(r *rand.Rand, from, to *talker) error {
	n := 1 + r.IntN(4096)
	testutil.Fill(from.mr.Bytes()[:n], r.Uint64())
	if _, err := to.qp.PostRecv([]uverbs.RecvWR{{ID: 1, SGL: []uverbs.SGE{to.mr.SGE(0, 4096)}}}); err != nil {
		return err
	}
	_, err := from.qp.PostSend([]uverbs.SendWR{{ID: 2, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{from.mr.SGE(0, n)}}})
	if err != nil {
		return err
	}
	deadline := time.Now().Add(patience)
	for seen := 0; seen < 2; {
		var wcs [2]uverbs.WC
		got, err := from.cq.Poll(wcs[:])
		if err != nil {
			return err
		}
		for i := range got {
			if err := wcs[i].Err(); err != nil {
				return err
			}
		}
		if seen += got; got == 0 {
			if time.Now().After(deadline) {
				return fmt.Errorf("%d of 2 completions came", seen)
			}
			runtime.Gosched()
		}
	}
	if !bytes.Equal(from.mr.Bytes()[:n], to.mr.Bytes()[:n]) {
		return fmt.Errorf("%d bytes changed on the way", n)
	}
	return nil
}

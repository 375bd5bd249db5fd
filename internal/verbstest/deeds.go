//go:build linux

package verbstest

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// deed is something that a goroutine of the stress test does.
type deed struct {
	name string
	do   func(*world, *rand.Rand) error
}

var deeds = []deed{
	{"open", (*world).open}, {"make domain", (*world).makePD}, {"make channel", (*world).makeChannel},
	{"make queue", (*world).makeCQ}, {"make queue", (*world).makeCQ}, {"make shared queue", (*world).makeSRQ},
	{"make queue pair", (*world).makeQP}, {"make queue pair", (*world).makeQP}, {"make queue pair", (*world).makeQP},
	{"register", (*world).makeMR}, {"register", (*world).makeMR}, {"make window", (*world).makeMW}, {"make handle", (*world).makeAH},
	{"close", (*world).closeOne}, {"close", (*world).closeOne}, {"close", (*world).closeOne}, {"close", (*world).closeOne},
	{"modify", (*world).modify}, {"modify", (*world).modify}, {"connect", (*world).connect}, {"connect", (*world).connect},
	{"send", (*world).send}, {"send", (*world).send}, {"send", (*world).send}, {"build", (*world).build},
	{"receive", (*world).recv}, {"receive", (*world).recv}, {"poll", (*world).poll}, {"poll", (*world).poll}, {"cursor", (*world).cursor},
	{"wait", (*world).wait}, {"arm", (*world).arm}, {"resize", (*world).resize}, {"query", (*world).query}, {"event", (*world).event},
	{"bind", (*world).bind}, {"re-register", (*world).rereg}, {"talk", (*world).talk},
}

// made puts a new object with the others.
func made[T closer](w *world, k kind, o T, err error) error {
	if err == nil {
		w.kinds[k].add(o)
	}
	return err
}

func (w *world) open(r *rand.Rand) error {
	if w.kinds[kindContext].full() {
		return nil
	}
	c, err := w.u.Device(w.t).Open()
	return made(w, kindContext, c, err)
}

func (w *world) makePD(r *rand.Rand) error {
	c, ok := pickAny[*uverbs.Context](w, r, kindContext)
	if !ok || w.kinds[kindPD].full() {
		return errNothing
	}
	pd, err := c.AllocPD()
	return made(w, kindPD, pd, err)
}

func (w *world) makeChannel(r *rand.Rand) error {
	c, ok := pickAny[*uverbs.Context](w, r, kindContext)
	if !ok || w.kinds[kindChannel].full() {
		return errNothing
	}
	ch, err := c.NewCompChannel()
	return made(w, kindChannel, ch, err)
}

func (w *world) makeCQ(r *rand.Rand) error {
	c, ok := pickAny[*uverbs.Context](w, r, kindContext)
	if !ok || w.kinds[kindCQ].full() {
		return errNothing
	}
	attr := uverbs.CQInitAttr{CQE: 1 + r.IntN(200)}
	if ch, ok := pickAny[*uverbs.CompChannel](w, r, kindChannel); ok && r.IntN(4) > 0 {
		attr.Channel = ch
	}
	cq, err := c.CreateCQAttr(&attr)
	return made(w, kindCQ, cq, err)
}

func (w *world) makeSRQ(r *rand.Rand) error {
	pd, ok := pickAny[*uverbs.PD](w, r, kindPD)
	if !ok || w.kinds[kindSRQ].full() {
		return errNothing
	}
	srq, err := pd.CreateSRQ(&uverbs.SRQInitAttr{MaxWR: 1 + uint32(r.IntN(50)), MaxSGE: 1 + uint32(r.IntN(3))})
	return made(w, kindSRQ, srq, err)
}

func (w *world) makeQP(r *rand.Rand) error {
	pd, ok := pickAny[*uverbs.PD](w, r, kindPD)
	cq, ok2 := pickAny[*uverbs.CQ](w, r, kindCQ)
	recv, _ := pickAny[*uverbs.CQ](w, r, kindCQ)
	if !ok || !ok2 || w.kinds[kindQP].full() {
		return errNothing
	}
	attr := &uverbs.QPInitAttr{
		Type: []uverbs.QPType{uverbs.QPTypeRC, uverbs.QPTypeRC, uverbs.QPTypeUC, uverbs.QPTypeUD}[r.IntN(4)], SendCQ: cq, RecvCQ: recv,
		Cap: uverbs.QPCap{
			MaxSendWR: 1 + uint32(r.IntN(30)), MaxRecvWR: uint32(r.IntN(30)), MaxSendSGE: 1 + uint32(r.IntN(4)),
			MaxRecvSGE: 1 + uint32(r.IntN(4)), MaxInline: uint32(r.IntN(64)),
		},
		SignalAll: r.IntN(3) == 0,
	}
	if srq, ok := pickAny[*uverbs.SRQ](w, r, kindSRQ); ok && r.IntN(3) == 0 {
		attr.SRQ = srq
	}
	qp, err := pd.CreateQP(attr)
	return made(w, kindQP, qp, err)
}

func (w *world) makeMR(r *rand.Rand) error {
	pd, ok := pickAny[*uverbs.PD](w, r, kindPD)
	if !ok || w.kinds[kindMR].full() {
		return errNothing
	}
	size, access := 1+r.IntN(20000), fullAccess
	if r.IntN(4) == 0 {
		access = 0
	}
	if r.IntN(2) == 0 {
		mr, err := pd.AllocMR(size, access)
		return made(w, kindMR, mr, err)
	}
	mr, err := pd.RegMR(make([]byte, size), access)
	return made(w, kindMR, mr, err)
}

func (w *world) makeMW(r *rand.Rand) error {
	pd, ok := pickAny[*uverbs.PD](w, r, kindPD)
	if !ok || w.kinds[kindMW].full() {
		return errNothing
	}
	mw, err := pd.AllocMW(uverbs.MWType(1 + r.IntN(2)))
	return made(w, kindMW, mw, err)
}

func (w *world) makeAH(r *rand.Rand) error {
	pd, ok := pickAny[*uverbs.PD](w, r, kindPD)
	if !ok || w.kinds[kindAH].full() {
		return errNothing
	}
	attr, err := w.way(pd.Context())
	if err != nil {
		return err
	}
	ah, err := pd.CreateAH(&attr)
	return made(w, kindAH, ah, err)
}

// way is that to the device itself.
func (w *world) way(c *uverbs.Context) (uverbs.AHAttr, error) {
	table, err := c.GIDTable()
	if err != nil {
		return uverbs.AHAttr{}, err
	}
	e, err := uverbs.FindGID(table, 1, w.u.Addr)
	return uverbs.AHAttr{DGID: e.GID, SGIDIndex: uint8(e.Index), IsGlobal: true, HopLimit: 64, PortNum: 1}, err
}

func (w *world) closeOne(r *rand.Rand) error {
	k := kind(r.IntN(int(numKinds)))
	c := w.kinds[k].pick(r)
	if c == nil {
		return errNothing
	}
	err := c.Close()
	if err == nil {
		w.kinds[k].remove(c)
	}
	return err
}

// modify takes a queue pair a step, or to its end.
func (w *world) modify(r *rand.Rand) error {
	qp, ok := pickAny[*uverbs.QP](w, r, kindQP)
	if !ok {
		return errNothing
	}
	switch r.IntN(5) {
	case 0:
		return qp.Modify(&uverbs.QPAttr{State: uverbs.StateError}, uverbs.QPAttrState)
	case 1:
		return qp.Modify(&uverbs.QPAttr{State: uverbs.StateReset}, uverbs.QPAttrState)
	}
	mask := toInit
	if qp.Type() == uverbs.QPTypeUD {
		mask = toInitUD
	}
	return qp.Modify(&uverbs.QPAttr{State: uverbs.StateInit, PortNum: 1, AccessFlags: fullAccess, QKey: qkey}, mask)
}

// connect brings a queue pair to RTS, with some other as its peer, or itself.
func (w *world) connect(r *rand.Rand) error {
	qp, ok := pickAny[*uverbs.QP](w, r, kindQP)
	peer, _ := pickAny[*uverbs.QP](w, r, kindQP)
	if !ok || peer == nil {
		return errNothing
	}
	attr, err := w.way(qp.PD().Context())
	if err != nil {
		return err
	}
	for _, st := range steps(qp.Type()) {
		err := qp.Modify(&uverbs.QPAttr{
			State: st.to, PortNum: 1, QKey: qkey, AccessFlags: fullAccess, PathMTU: uverbs.MTU1024, DestQPNum: peer.Num(),
			MaxDestRDAtomic: 2, MaxRDAtomic: 2, MinRNRTimer: 1, AH: attr, Timeout: 8, RetryCnt: 1, RNRRetry: 1,
		}, st.required)
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *world) poll(r *rand.Rand) error {
	cq, ok := pickAny[*uverbs.CQ](w, r, kindCQ)
	if !ok {
		return errNothing
	}
	return second(cq.Poll(make([]uverbs.WC, 1+r.IntN(64))))
}

func (w *world) cursor(r *rand.Rand) error {
	cq, ok := pickAny[*uverbs.CQ](w, r, kindCQ)
	if !ok {
		return errNothing
	}
	cur := cq.Start()
	for range r.IntN(40) {
		if !cur.Next() {
			break
		}
		if r.IntN(2) == 0 {
			_ = cur.WC()
		}
	}
	return cur.End()
}

func (w *world) arm(r *rand.Rand) error {
	cq, ok := pickAny[*uverbs.CQ](w, r, kindCQ)
	if !ok {
		return errNothing
	}
	return cq.Arm(r.IntN(2) == 0)
}

func (w *world) resize(r *rand.Rand) error {
	if r.IntN(2) == 0 {
		if cq, ok := pickAny[*uverbs.CQ](w, r, kindCQ); ok {
			return cq.Resize(1 + r.IntN(300))
		}
	}
	srq, ok := pickAny[*uverbs.SRQ](w, r, kindSRQ)
	if !ok {
		return errNothing
	}
	return srq.Modify(&uverbs.SRQAttr{MaxWR: 1 + uint32(r.IntN(100)), Limit: uint32(r.IntN(4))}, uverbs.SRQAttrMask(1+r.IntN(3)))
}

// soon is a context for a wait that may be for nothing.
func soon(r *rand.Rand) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), time.Duration(r.IntN(5))*time.Millisecond, errNothing)
}

func (w *world) wait(r *rand.Rand) error {
	cq, ok := pickAny[*uverbs.CQ](w, r, kindCQ)
	if !ok {
		return errNothing
	}
	ctx, cancel := soon(r)
	defer cancel()
	_, err := cq.Wait(ctx, make([]uverbs.WC, 1+r.IntN(8)))
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (w *world) event(r *rand.Rand) error {
	c, ok := pickAny[*uverbs.Context](w, r, kindContext)
	if !ok {
		return errNothing
	}
	ctx, cancel := soon(r)
	defer cancel()
	_, err := c.NextAsyncEvent(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

//go:build linux

package tests

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/uverbs"
)

// TestKernelSteps holds the library's table of state transitions against a kernel: what it
// refuses, the kernel would refuse, and the other way round, for every transition of every
// transport, with each attribute too few and too many. It asks the running kernel if there
// is a device, else the fake one.
func TestKernelSteps(t *testing.T) {
	r := realRig(t)
	if r == nil {
		r = fakeRig(t, "6.1", abi.RDMA_DRIVER_RXE)
	}
	if !r.rxe() {
		return // iWARP has states of its own, and rdma_cm moves them
	}
	r.t = t
	r.begin()
	l := newLibQP(t, r.sys)
	attempts, differ := 0, 0
	for _, typ := range []uverbs.QPType{uverbs.QPTypeRC, uverbs.QPTypeUC, uverbs.QPTypeUD} {
		for from := uint8(stateReset); from <= stateErr; from++ {
			if from == stateSQE {
				continue // nothing leads there on demand
			}
			raw := rawQP{}
			for to := uint8(stateReset); to <= stateErr; to++ {
				for _, mask := range stepMasks(typ, from, to) {
					if typ == uverbs.QPTypeUC && from == stateSQD && mask&maskAV != 0 {
						continue // the kernel adds the port to the mask, which UC does not take
					}
					attempts++
					kernel := r.tryStep(&raw, typ, from, to, mask)
					library := l.tryStep(t, typ, from, to, mask)
					if kernel != library {
						differ++
						t.Errorf("%v from %v to %v with %v: the kernel takes it: %v, the library: %v",
							typ, uverbs.QPState(from), uverbs.QPState(to), uverbs.QPAttrMask(mask), kernel, library)
					}
				}
			}
			r.drop(&raw)
		}
	}
	t.Logf("%d attempts, %d judged differently", attempts, differ)
}

// stepMasks are the attributes that lead from a state to another, or some of them, and each
// mask with one attribute more and with one less.
func stepMasks(typ uverbs.QPType, from, to uint8) (masks []uint32) {
	base := uint32(maskState)
	for _, s := range rawSteps(typ) {
		if s.from == from && s.to == to {
			base = s.mask
		}
	}
	masks = append(masks, base)
	for bit := uint32(maskCurState); bit <= maskDest; bit <<= 1 {
		if bit != maskAltPath { // which the kernel bans on Ethernet, whatever the state
			masks = append(masks, base^bit)
		}
	}
	return masks
}

type rawStep struct {
	from, to uint8
	mask     uint32
}

// rawSteps are the way up, with what each step needs.
func rawSteps(typ uverbs.QPType) []rawStep {
	switch typ {
	case uverbs.QPTypeUD:
		return []rawStep{
			{stateReset, stateInit, maskInitUD}, {stateInit, stateRTR, maskState}, {stateRTR, stateRTS, maskState | maskSQPSN},
		}
	case uverbs.QPTypeUC:
		return []rawStep{
			{stateReset, stateInit, maskInitRC}, {stateInit, stateRTR, maskState | maskAV | maskMTU | maskDest | maskRQPSN},
			{stateRTR, stateRTS, maskState | maskSQPSN},
		}
	}
	return []rawStep{{stateReset, stateInit, maskInitRC}, {stateInit, stateRTR, maskRTR}, {stateRTR, stateRTS, maskRTS}}
}

// way is how to get to a state from RESET.
func stepsTo(typ uverbs.QPType, state uint8) (way []rawStep) {
	up := rawSteps(typ)
	switch state {
	case stateReset:
		return nil
	case stateInit, stateRTR, stateRTS:
		return up[:state]
	case stateErr:
		return append(up[:1:1], rawStep{stateInit, stateErr, maskState})
	}
	return append(up[:3:3], rawStep{stateRTS, stateSQD, maskState})
}

// stepValues are good for every transition.
func stepValues(gid abi.IbUverbsGidEntry, from, to uint8, mask, num uint32) abi.IbUverbsModifyQp {
	dest := abi.IbUverbsQpDest{Dgid: [16]byte(uapi.Bytes(&gid.Gid)), SgidIndex: uint8(gid.GidIndex), IsGlobal: 1, PortNum: 1, HopLimit: 64}
	return abi.IbUverbsModifyQp{
		AttrMask: mask, QpState: to, CurQpState: from, PathMtu: 1, Qkey: 0x1234, RqPsn: 1, SqPsn: 1, DestQpNum: num,
		QpAccessFlags: localWrite | remoteWrite | remoteRead, PortNum: 1, Timeout: 14, RetryCnt: 6, RnrRetry: 6, MaxRdAtomic: 1,
		MaxDestRdAtomic: 1, MinRnrTimer: 12, Dest: dest, AltDest: dest, AltPortNum: 1, AltTimeout: 14,
	}
}

// tryStep tells whether the kernel takes a step. The queue pair is made anew when it moved.
func (r *rig) tryStep(q *rawQP, typ uverbs.QPType, from, to uint8, mask uint32) bool {
	r.t.Helper()
	gid := r.routable()
	if *q == (rawQP{}) {
		*q = r.mustQP(qpRequest{typ: uint64(typ)})
		for _, s := range stepsTo(typ, from) {
			r.must(r.modify(*q, stepValues(gid, s.from, s.to, s.mask, q.num)))
		}
		for deadline := time.Now().Add(10 * time.Second); from == stateSQD && r.draining(*q); { // until then all is EINVAL
			if time.Now().After(deadline) {
				r.t.Fatal("the send queue does not drain")
			}
		}
	}
	err := r.modify(*q, stepValues(gid, from, to, mask, q.num))
	if err == nil {
		r.drop(q)
	}
	return !errors.Is(err, syscall.EINVAL)
}

func (r *rig) draining(q rawQP) bool {
	r.t.Helper()
	got, err := r.query(q)
	r.must(err)
	return got.SqDraining != 0
}

func (r *rig) drop(q *rawQP) {
	r.t.Helper()
	if *q != (rawQP{}) {
		r.must(r.destroyQP(*q, new(abi.IbUverbsDestroyQpResp)))
		r.must(r.destroyCQ(q.cq, new(abi.IbUverbsDestroyCqResp)))
		*q = rawQP{}
	}
}

// libQP makes queue pairs of package uverbs.
type libQP struct {
	pd *uverbs.PD
	cq *uverbs.CQ
	qp *uverbs.QP
	at string // type and state of qp
}

func newLibQP(t *testing.T, sys *discover.System) *libQP {
	t.Helper()
	devs, err := uverbs.Devices(uverbs.WithSystem(sys))
	testutil.Must(t, err)
	d := devs[0]
	if sys.Root == "/" || sys.Root == "" {
		d = testutil.Device(t)
	}
	c, err := d.Open()
	testutil.Must(t, err)
	l := &libQP{}
	l.pd, err = c.AllocPD()
	testutil.Must(t, err)
	l.cq, err = c.CreateCQ(16, nil)
	testutil.Must(t, err)
	t.Cleanup(func() {
		l.drop(t)
		if err := errors.Join(l.cq.Close(), l.pd.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *libQP) drop(t *testing.T) {
	t.Helper()
	if l.qp != nil {
		testutil.Must(t, l.qp.Close())
		l.qp = nil
	}
}

// tryStep tells whether the library takes a step: the kernel's own refusal of a value is
// none of the library's.
func (l *libQP) tryStep(t *testing.T, typ uverbs.QPType, from, to uint8, mask uint32) bool {
	t.Helper()
	if at := fmt.Sprint(typ, from); l.qp == nil || l.at != at {
		l.drop(t)
		var err error
		l.qp, err = l.pd.CreateQP(&uverbs.QPInitAttr{Type: typ, SendCQ: l.cq, Cap: uverbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}})
		testutil.Must(t, err)
		for _, s := range stepsTo(typ, from) {
			attr := l.values(t, s.from, s.to)
			testutil.Must(t, l.qp.Modify(&attr, uverbs.QPAttrMask(s.mask)))
		}
		l.at = at
	}
	attr := l.values(t, from, to)
	err := l.qp.Modify(&attr, uverbs.QPAttrMask(mask))
	if err == nil {
		l.drop(t)
	}
	return !errors.Is(err, uverbs.ErrInvalid)
}

func (l *libQP) values(t *testing.T, from, to uint8) uverbs.QPAttr {
	t.Helper()
	table, err := l.pd.Context().GIDTable()
	testutil.Must(t, err)
	ah := uverbs.AHAttr{IsGlobal: true, PortNum: 1, HopLimit: 64}
	for _, e := range table {
		if e.Type == uverbs.GIDTypeRoCEv2 && e.GID.Addr().Is4() {
			ah.DGID, ah.SGIDIndex = e.GID, uint8(e.Index)
		}
	}
	return uverbs.QPAttr{
		State: uverbs.QPState(to), CurState: uverbs.QPState(from), PathMTU: 1, QKey: 0x1234, RQPSN: 1, SQPSN: 1, DestQPNum: l.qp.Num(),
		AccessFlags: localWrite | remoteWrite | remoteRead, PortNum: 1, Timeout: 14, RetryCnt: 6, RNRRetry: 6, MaxRDAtomic: 1,
		MaxDestRDAtomic: 1, MinRNRTimer: 12, AH: ah, AltAH: ah, AltPortNum: 1, AltTimeout: 14,
	}
}

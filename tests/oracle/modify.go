package oracle

import (
	"fmt"

	"github.com/pureverbs/rdma/uverbs"
)

// Fixed attributes of queue pairs: what matters here is that both sides tell the same.
const (
	firstPSN = 0x123456
	qkey     = 0x11111111
)

func (r *Runner) modify(s *Step) string {
	q := at(r.qps, s.arg(0))
	attr, mask := uverbs.QPAttr{}, uverbs.QPAttrState
	switch s.arg(1) {
	case "init":
		attr, mask = initAttr(q.Type())
	case "rtr":
		attr, mask = rtrAttr(q.Type(), at(r.qps, s.Opts["peer"]).Num())
	case "rts":
		attr, mask = rtsAttr(q.Type())
	case "err":
		attr.State = uverbs.StateError
	case "reset":
		attr.State = uverbs.StateReset
	}
	return verdict(q.Modify(&attr, mask))
}

func initAttr(typ uverbs.QPType) (uverbs.QPAttr, uverbs.QPAttrMask) {
	a := uverbs.QPAttr{State: uverbs.StateInit, PortNum: 1}
	mask := uverbs.QPAttrState | uverbs.QPAttrPKeyIndex | uverbs.QPAttrPort
	if typ == uverbs.QPTypeUD {
		a.QKey = qkey
		return a, mask | uverbs.QPAttrQKey
	}
	a.AccessFlags = uverbs.AccessRemoteWrite
	if typ == uverbs.QPTypeRC {
		a.AccessFlags |= uverbs.AccessRemoteRead | uverbs.AccessRemoteAtomic
	}
	return a, mask | uverbs.QPAttrAccessFlags
}

func rtrAttr(typ uverbs.QPType, peer uint32) (uverbs.QPAttr, uverbs.QPAttrMask) {
	if typ == uverbs.QPTypeUD {
		return uverbs.QPAttr{State: uverbs.StateRTR}, uverbs.QPAttrState
	}
	a := uverbs.QPAttr{
		State: uverbs.StateRTR, PathMTU: uverbs.MTU1024, DestQPNum: peer, RQPSN: firstPSN,
		AH: uverbs.AHAttr{DGID: gid, IsGlobal: true, PortNum: 1, HopLimit: 64, FlowLabel: 0x51234},
	}
	mask := uverbs.QPAttrState | uverbs.QPAttrAV | uverbs.QPAttrPathMTU | uverbs.QPAttrDestQPN | uverbs.QPAttrRQPSN
	if typ == uverbs.QPTypeRC {
		a.MaxDestRDAtomic, a.MinRNRTimer = 4, 12
		mask |= uverbs.QPAttrMaxDestRDAtomic | uverbs.QPAttrMinRNRTimer
	}
	return a, mask
}

func rtsAttr(typ uverbs.QPType) (uverbs.QPAttr, uverbs.QPAttrMask) {
	a := uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: firstPSN}
	mask := uverbs.QPAttrState | uverbs.QPAttrSQPSN
	if typ == uverbs.QPTypeRC {
		a.MaxRDAtomic, a.Timeout, a.RetryCnt, a.RNRRetry = 4, 14, 7, 7
		mask |= uverbs.QPAttrMaxQPRDAtomic | uverbs.QPAttrTimeout | uverbs.QPAttrRetryCnt | uverbs.QPAttrRNRRetry
	}
	return a, mask
}

func (r *Runner) query(s *Step) string {
	a, err := at(r.qps, s.arg(0)).Query(uverbs.QPAttrState | uverbs.QPAttrCap)
	if err != nil {
		return "refused"
	}
	return fmt.Sprintf("ok %d %s rd %d %d dest %#x psn %#x %#x access %#x", a.State, capWords(a.Cap), a.MaxRDAtomic,
		a.MaxDestRDAtomic, a.DestQPNum, a.RQPSN, a.SQPSN, uint32(a.AccessFlags))
}

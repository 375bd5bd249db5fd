package uverbs

import (
	"fmt"
	"math/bits"
	"strings"
)

// QPState is the state of a queue pair: enum ibv_qp_state.
type QPState uint32

// The states (IBTA volume 1, 10.3.1).
const (
	StateReset QPState = iota // nothing can be posted
	StateInit                 // receives may be posted
	StateRTR                  // ready to receive
	StateRTS                  // ready to send
	StateSQD                  // send queue drained
	StateSQE                  // send queue error
	StateError                // everything is flushed
)

var stateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

func (s QPState) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state " + utoa(uint32(s))
}

// QPAttrMask says which fields of a QPAttr count: enum ibv_qp_attr_mask.
type QPAttrMask uint32

// The fields.
const (
	QPAttrState QPAttrMask = 1 << iota
	QPAttrCurState
	QPAttrEnSQDAsyncNotify
	QPAttrAccessFlags
	QPAttrPKeyIndex
	QPAttrPort
	QPAttrQKey
	QPAttrAV
	QPAttrPathMTU
	QPAttrTimeout
	QPAttrRetryCnt
	QPAttrRNRRetry
	QPAttrRQPSN
	QPAttrMaxQPRDAtomic
	QPAttrAltPath
	QPAttrMinRNRTimer
	QPAttrSQPSN
	QPAttrMaxDestRDAtomic
	QPAttrPathMigState
	QPAttrCap
	QPAttrDestQPN
	qpAttrEnd
)

var attrNames = [...]string{
	"State", "CurState", "EnSQDAsyncNotify", "AccessFlags", "PKeyIndex", "PortNum", "QKey", "AH", "PathMTU", "Timeout",
	"RetryCnt", "RNRRetry", "RQPSN", "MaxRDAtomic", "AltAH", "MinRNRTimer", "SQPSN", "MaxDestRDAtomic", "PathMigState",
	"Cap", "DestQPNum",
}

// String names the fields of QPAttr.
func (m QPAttrMask) String() string {
	var names []string
	for v := uint32(m); v != 0; v &= v - 1 {
		if i := bits.TrailingZeros32(v); i < len(attrNames) {
			names = append(names, attrNames[i])
		} else {
			names = append(names, fmt.Sprintf("bit %d", i))
		}
	}
	return strings.Join(names, ", ")
}

// step is what one transition of a queue pair needs and allows besides the state.
type step struct {
	from, to           QPState
	required, optional QPAttrMask
}

const (
	initUC = QPAttrPKeyIndex | QPAttrPort | QPAttrAccessFlags
	initUD = QPAttrPKeyIndex | QPAttrPort | QPAttrQKey
	rtrUC  = QPAttrAV | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN
	rtrOpt = QPAttrAltPath | QPAttrAccessFlags | QPAttrPKeyIndex
	rtsUC  = QPAttrCurState | QPAttrAltPath | QPAttrAccessFlags | QPAttrPathMigState
	rtsRC  = rtsUC | QPAttrMinRNRTimer
	rtsUD  = QPAttrCurState | QPAttrQKey
	sqdUC  = QPAttrAV | QPAttrAltPath | QPAttrAccessFlags | QPAttrPKeyIndex | QPAttrPathMigState
	sqdRC  = sqdUC | QPAttrPort | QPAttrTimeout | QPAttrRetryCnt | QPAttrRNRRetry | QPAttrMaxQPRDAtomic |
		QPAttrMaxDestRDAtomic | QPAttrMinRNRTimer
)

// IBTA volume 1, table 91. Every state may also go to RESET, and but for RESET to ERR, with
// nothing but the state.
var (
	stepsRC = []step{
		{StateReset, StateInit, initUC, 0},
		{StateInit, StateInit, 0, initUC},
		{StateInit, StateRTR, rtrUC | QPAttrMaxDestRDAtomic | QPAttrMinRNRTimer, rtrOpt},
		{StateRTR, StateRTS, QPAttrTimeout | QPAttrRetryCnt | QPAttrRNRRetry | QPAttrSQPSN | QPAttrMaxQPRDAtomic, rtsRC},
		{StateRTS, StateRTS, 0, rtsRC},
		{StateRTS, StateSQD, 0, QPAttrEnSQDAsyncNotify},
		{StateSQD, StateRTS, 0, rtsRC},
		{StateSQD, StateSQD, 0, sqdRC},
	}
	stepsUC = []step{
		{StateReset, StateInit, initUC, 0},
		{StateInit, StateInit, 0, initUC},
		{StateInit, StateRTR, rtrUC, rtrOpt},
		{StateRTR, StateRTS, QPAttrSQPSN, rtsUC},
		{StateRTS, StateRTS, 0, rtsUC},
		{StateRTS, StateSQD, 0, QPAttrEnSQDAsyncNotify},
		{StateSQD, StateRTS, 0, rtsUC},
		{StateSQD, StateSQD, 0, sqdUC},
		{StateSQE, StateRTS, 0, QPAttrCurState | QPAttrAccessFlags},
	}
	stepsUD = []step{
		{StateReset, StateInit, initUD, 0},
		{StateInit, StateInit, 0, initUD},
		{StateInit, StateRTR, 0, QPAttrPKeyIndex | QPAttrQKey},
		{StateRTR, StateRTS, QPAttrSQPSN, rtsUD},
		{StateRTS, StateRTS, 0, rtsUD},
		{StateRTS, StateSQD, 0, QPAttrEnSQDAsyncNotify},
		{StateSQD, StateRTS, 0, rtsUD},
		{StateSQD, StateSQD, 0, QPAttrPKeyIndex | QPAttrQKey},
		{StateSQE, StateRTS, 0, rtsUD},
	}
)

func (t QPType) steps() []step {
	switch t {
	case QPTypeUC:
		return stepsUC
	case QPTypeUD:
		return stepsUD
	}
	return stepsRC
}

// checkStep says which attribute is missing or too much, where the kernel only says EINVAL.
func (t QPType) checkStep(from, to QPState, mask QPAttrMask) error {
	mask &^= QPAttrState
	if to == StateReset || to == StateError && from != StateReset {
		return judge(from, to, mask, 0, 0)
	}
	for _, s := range t.steps() {
		if s.from == from && s.to == to {
			return judge(from, to, mask, s.required, s.optional)
		}
	}
	return fmt.Errorf("%w: an %v queue pair cannot go from %v to %v", ErrInvalid, t, from, to)
}

func judge(from, to QPState, mask, required, optional QPAttrMask) error {
	if lack := required &^ mask; lack != 0 {
		return fmt.Errorf("%w: %v to %v needs %v", ErrInvalid, from, to, lack)
	}
	if excess := mask &^ (required | optional); excess != 0 {
		return fmt.Errorf("%w: %v to %v does not take %v", ErrInvalid, from, to, excess)
	}
	return nil
}

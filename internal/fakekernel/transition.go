//go:build linux

package fakekernel

import "github.com/pureverbs/rdma/abi"

// Bits of the attribute mask: enum ib_qp_attr_mask.
const (
	maskState = 1 << iota
	maskCurState
	maskEnSQD
	maskAccess
	maskPKey
	maskPort
	maskQKey
	maskAV
	maskMTU
	maskTimeout
	maskRetry
	maskRNRRetry
	maskRQPSN
	maskMaxRD
	maskAlt
	maskMinRNR
	maskSQPSN
	maskMaxDestRD
	maskMig
	maskCap
	maskDest
	standardBits = 1<<iota - 1
)

// transition is a row of qp_state_table in core/verbs.c, for one type of queue pairs.
type transition struct {
	from, to           uint8
	required, optional uint32
}

const (
	initBits     = maskPKey | maskPort | maskAccess
	onlineBits   = maskCurState | maskAccess | maskAlt | maskMig
	datagramBits = maskPKey | maskPort | maskQKey
)

var transitionsRC = []transition{
	{stateReset, stateInit, initBits, 0},
	{stateInit, stateInit, 0, initBits},
	{stateInit, stateRTR, maskAV | maskMTU | maskDest | maskRQPSN | maskMaxDestRD | maskMinRNR, maskAlt | maskAccess | maskPKey},
	{stateRTR, stateRTS, maskTimeout | maskRetry | maskRNRRetry | maskSQPSN | maskMaxRD, onlineBits | maskMinRNR},
	{stateRTS, stateRTS, 0, onlineBits | maskMinRNR},
	{stateRTS, stateSQD, 0, maskEnSQD},
	{stateSQD, stateRTS, 0, onlineBits | maskMinRNR},
	{stateSQD, stateSQD, 0, initBits | maskAV | maskTimeout | maskRetry | maskRNRRetry | maskMaxRD | maskMaxDestRD |
		maskAlt | maskMinRNR | maskMig},
	{stateSQE, stateRTS, 0, 0},
}

var transitionsUC = []transition{
	{stateReset, stateInit, initBits, 0},
	{stateInit, stateInit, 0, initBits},
	{stateInit, stateRTR, maskAV | maskMTU | maskDest | maskRQPSN, maskAlt | maskAccess | maskPKey},
	{stateRTR, stateRTS, maskSQPSN, onlineBits},
	{stateRTS, stateRTS, 0, onlineBits},
	{stateRTS, stateSQD, 0, maskEnSQD},
	{stateSQD, stateRTS, 0, onlineBits},
	{stateSQD, stateSQD, 0, maskAV | maskAlt | maskAccess | maskPKey | maskMig},
	{stateSQE, stateRTS, 0, maskCurState | maskAccess},
}

var transitionsUD = []transition{
	{stateReset, stateInit, datagramBits, 0},
	{stateInit, stateInit, 0, datagramBits},
	{stateInit, stateRTR, 0, maskPKey | maskQKey},
	{stateRTR, stateRTS, maskSQPSN, maskCurState | maskQKey},
	{stateRTS, stateRTS, 0, maskCurState | maskQKey},
	{stateRTS, stateSQD, 0, maskEnSQD},
	{stateSQD, stateRTS, 0, maskCurState | maskQKey},
	{stateSQD, stateSQD, 0, maskPKey | maskQKey},
	{stateSQE, stateRTS, 0, maskCurState | maskQKey},
}

// legal is ib_modify_qp_is_ok.
func legal(typ, from, to uint8, mask uint32) bool {
	if mask&maskCurState != 0 && (from < stateRTR || from > stateSQE) {
		return false
	}
	mask &^= maskState
	if to == stateReset || to == stateError && from != stateReset {
		return mask == 0
	}
	table := transitionsRC
	switch typ {
	case abi.IB_UVERBS_QPT_UC:
		table = transitionsUC
	case abi.IB_UVERBS_QPT_UD:
		table = transitionsUD
	}
	for _, t := range table {
		if t.from == from && t.to == to {
			return mask&t.required == t.required && mask&^(t.required|t.optional) == 0
		}
	}
	return false
}

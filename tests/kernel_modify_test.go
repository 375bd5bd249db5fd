//go:build linux

package tests

import (
	"bytes"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// The bits of enum ib_qp_attr_mask.
const (
	maskState = 1 << iota
	maskCurState
	maskSQDNotify
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
	maskAltPath
	maskMinRNR
	maskSQPSN
	maskMaxDestRD
	maskMigration
	maskCap
	maskDest

	maskInitRC = maskState | maskAccess | maskPKey | maskPort
	maskInitUD = maskState | maskQKey | maskPKey | maskPort
	maskRTR    = maskState | maskAV | maskMTU | maskDest | maskRQPSN | maskMaxDestRD | maskMinRNR
	maskRTS    = maskState | maskSQPSN | maskTimeout | maskRetry | maskRNRRetry | maskMaxRD
)

// enum ib_qp_state.
const (
	stateReset = iota
	stateInit
	stateRTR
	stateRTS
	stateSQD
	stateSQE
	stateErr
)

// modifyCases move queue pairs. siw takes everything: it looks at state and access only,
// and leaves the rest to rdma_cm.
var modifyCases = []kernelCase{
	{"to INIT", nil, func(r *rig) (fields, error) {
		q := r.mustQP(qpRequest{})
		err := r.toInit(q)
		got, _ := r.query(q)
		return fields{"state": got.QpState}, err
	}},
	{"to INIT without a port", rules{{errno: syscall.EINVAL}, {driver: "siw"}}, func(r *rig) (fields, error) {
		q := r.mustQP(qpRequest{})
		return nil, r.modify(q, abi.IbUverbsModifyQp{AttrMask: maskInitRC &^ maskPort, QpState: stateInit})
	}},
	{"to INIT on port 9", always(syscall.EINVAL), func(r *rig) (fields, error) {
		q := r.mustQP(qpRequest{})
		return nil, r.modify(q, abi.IbUverbsModifyQp{AttrMask: maskInitRC, QpState: stateInit, PortNum: 9})
	}},
	{"to INIT with a Q_Key", rules{{errno: syscall.EINVAL}, {driver: "siw"}}, func(r *rig) (fields, error) {
		q := r.mustQP(qpRequest{})
		return nil, r.modify(q, abi.IbUverbsModifyQp{AttrMask: maskInitRC | maskQKey, QpState: stateInit, PortNum: 1})
	}},
	{"from RESET to RTS", always(syscall.EINVAL), func(r *rig) (fields, error) {
		return nil, r.modify(r.mustQP(qpRequest{}), abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateRTS})
	}},
	{"from RESET to ERR", rules{{errno: syscall.EINVAL}, {driver: "siw"}}, func(r *rig) (fields, error) {
		return nil, r.modify(r.mustQP(qpRequest{}), abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateErr})
	}},
	{"to a state that is none", always(syscall.EINVAL), func(r *rig) (fields, error) {
		return nil, r.modify(r.mustQP(qpRequest{}), abi.IbUverbsModifyQp{AttrMask: maskState, QpState: 99})
	}},
	{"to ERR and back", nil, func(r *rig) (fields, error) {
		q := r.mustQP(qpRequest{})
		r.must(r.toInit(q))
		r.must(r.modify(q, abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateErr}))
		inErr, err := r.query(q)
		r.must(err)
		err = r.modify(q, abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateReset})
		got, _ := r.query(q)
		return fields{"states": []uint8{inErr.QpState, got.QpState}}, err
	}},
	{"a queue pair that is not there", badHandle, func(r *rig) (fields, error) {
		return nil, r.toInit(rawQP{handle: 4711})
	}},
}

// connectCases are for transports that are connected by hand.
var connectCases = []kernelCase{
	{"to RTR and RTS", nil, func(r *rig) (fields, error) {
		q := r.mustQP(qpRequest{})
		r.must(r.toInit(q))
		r.must(r.toRTR(q, nil))
		err := r.toRTS(q)
		got, _ := r.query(q)
		return fields{"state": got.QpState, "timeout": got.Timeout, "retry": got.RetryCnt, "rnr": got.RnrRetry, "psn": got.SqPsn,
			"rq psn": got.RqPsn, "mtu": got.PathMtu, "min rnr": got.MinRnrTimer, "rd": got.MaxRdAtomic, "dest rd": got.MaxDestRdAtomic,
			"dest": got.DestQpNum, "port": got.PortNum, "access": got.QpAccessFlags}, err
	}},
	{"to RTR without an address", always(syscall.EINVAL), func(r *rig) (fields, error) {
		return nil, r.rtr(func(a *abi.IbUverbsModifyQp) { a.AttrMask &^= maskAV })
	}},
	{"to RTR by an empty GID", always(syscall.ENODATA), func(r *rig) (fields, error) {
		return nil, r.rtr(func(a *abi.IbUverbsModifyQp) { a.Dest.SgidIndex = 200 })
	}},
	{"to RTR without GRH", always(syscall.EINVAL), func(r *rig) (fields, error) {
		return nil, r.rtr(func(a *abi.IbUverbsModifyQp) { a.Dest.IsGlobal = 0 })
	}},
	{"to RTR with an address of port 9", always(syscall.EINVAL), func(r *rig) (fields, error) {
		return nil, r.rtr(func(a *abi.IbUverbsModifyQp) { a.Dest.PortNum = 9 })
	}},
	{"to RTR with an MTU that is too large", nil, func(r *rig) (fields, error) {
		return nil, r.rtr(func(a *abi.IbUverbsModifyQp) { a.PathMtu = 5 })
	}},
	{"to RTR with more reads than the device can", nil, func(r *rig) (fields, error) {
		return nil, r.rtr(func(a *abi.IbUverbsModifyQp) { a.MaxDestRdAtomic = 255 })
	}},
	{"to RTS with a timeout beyond 31", always(syscall.EINVAL), func(r *rig) (fields, error) {
		q := r.mustQP(qpRequest{})
		r.must(r.toInit(q))
		r.must(r.toRTR(q, nil))
		return nil, r.modify(q, abi.IbUverbsModifyQp{AttrMask: maskRTS, QpState: stateRTS, Timeout: 32})
	}},
	{"UD to RTS", nil, func(r *rig) (fields, error) {
		q := r.mustQP(qpRequest{typ: abi.IB_UVERBS_QPT_UD})
		r.must(r.modify(q, abi.IbUverbsModifyQp{AttrMask: maskInitUD, QpState: stateInit, PortNum: 1, Qkey: 0x1234}))
		r.must(r.modify(q, abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateRTR}))
		err := r.modify(q, abi.IbUverbsModifyQp{AttrMask: maskState | maskSQPSN, QpState: stateRTS, SqPsn: 3})
		got, _ := r.query(q)
		return fields{"state": got.QpState, "qkey": got.Qkey}, err
	}},
	{"UD to INIT without Q_Key", always(syscall.EINVAL), func(r *rig) (fields, error) {
		q := r.mustQP(qpRequest{typ: abi.IB_UVERBS_QPT_UD})
		return nil, r.modify(q, abi.IbUverbsModifyQp{AttrMask: maskInitUD &^ maskQKey, QpState: stateInit, PortNum: 1})
	}},
}

func (r *rig) modify(q rawQP, a abi.IbUverbsModifyQp) error {
	a.QpHandle = q.handle
	return r.invoke(uapi.ModifyQP, uapi.Bytes(&a), nil, nil, nil)
}

func (r *rig) toInit(q rawQP) error {
	return r.modify(q, abi.IbUverbsModifyQp{
		AttrMask: maskInitRC, QpState: stateInit, PortNum: 1, QpAccessFlags: localWrite | remoteRead | remoteWrite,
	})
}

// toRTR makes the queue pair its own peer, but for what change does.
func (r *rig) toRTR(q rawQP, change func(*abi.IbUverbsModifyQp)) error {
	gid := r.routable()
	a := abi.IbUverbsModifyQp{
		AttrMask: maskRTR, QpState: stateRTR, PathMtu: 1, DestQpNum: q.num, RqPsn: 7, MaxDestRdAtomic: 2, MinRnrTimer: 12,
		Dest: abi.IbUverbsQpDest{Dgid: [16]byte(uapi.Bytes(&gid.Gid)), SgidIndex: uint8(gid.GidIndex), IsGlobal: 1, PortNum: 1, HopLimit: 64},
	}
	a.DestQpNum = 99 // so that it is the same wherever it is asked
	if change != nil {
		change(&a)
	}
	return r.modify(q, a)
}

func (r *rig) toRTS(q rawQP) error {
	return r.modify(q, abi.IbUverbsModifyQp{
		AttrMask: maskRTS, QpState: stateRTS, SqPsn: 9, Timeout: 14, RetryCnt: 6, RnrRetry: 5, MaxRdAtomic: 3,
	})
}

func (r *rig) rtr(change func(*abi.IbUverbsModifyQp)) error {
	q := r.mustQP(qpRequest{})
	r.must(r.toInit(q))
	return r.toRTR(q, change)
}

// routable is the entry of the address that connections use. An interface may have others.
func (r *rig) routable() abi.IbUverbsGidEntry {
	r.t.Helper()
	ip := r.ip().As16()
	table, n, err := r.gids(64, 32)
	r.must(err)
	for _, e := range table[:n] {
		if bytes.Equal(uapi.Bytes(&e.Gid), ip[:]) && e.GidType == abi.IB_UVERBS_GID_TYPE_ROCE_V2 {
			return e
		}
	}
	r.t.Fatalf("no GID of %v in %+v", r.ip(), table[:n])
	return abi.IbUverbsGidEntry{}
}

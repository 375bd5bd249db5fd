package uverbs

import (
	"net/netip"

	"github.com/pureverbs/rdma/abi"
)

// MTU is a path MTU: enum ibv_mtu.
type MTU uint32

// The path MTUs.
const (
	MTU256 MTU = iota + 1
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes is the MTU in bytes, 0 if it is none.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// GID is a global identifier of a port: on RoCE an IPv6 address, or an IPv4 address mapped
// into one.
type GID [16]byte

// Addr is the address that the GID stands for, IPv4 where it is mapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

func (g GID) String() string { return netip.AddrFrom16(g).String() }

// AHAttr is the way to a peer: struct ibv_ah_attr. On Ethernet only the global part counts:
// IsGlobal must be set, the kernel finds the peer's MAC address itself.
type AHAttr struct {
	DGID         GID // of the peer
	FlowLabel    uint32
	SGIDIndex    uint8 // of the own GID, in the port's table; its type decides between RoCE v1 and v2
	HopLimit     uint8
	TrafficClass uint8
	IsGlobal     bool
	DLID         uint16 // InfiniBand only, like the rest but PortNum
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	PortNum      uint8 // of the own port
}

// QPAttr holds the attributes of a queue pair: struct ibv_qp_attr. A mask says which count.
type QPAttr struct {
	State            QPState
	CurState         QPState
	PathMTU          MTU
	PathMigState     uint8
	QKey             uint32
	RQPSN, SQPSN     uint32 // first packet sequence numbers, 24 bits
	DestQPNum        uint32
	AccessFlags      AccessFlags // what the peer may do through this queue pair
	Cap              QPCap
	AH, AltAH        AHAttr
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	EnSQDAsyncNotify bool
	SQDraining       bool
	MaxRDAtomic      uint8 // RDMA READs and atomics in flight to the peer
	MaxDestRDAtomic  uint8 // and from it; at least the peer's MaxRDAtomic
	MinRNRTimer      uint8 // code, see RNRTimer; 0 is the longest
	PortNum          uint8
	Timeout          uint8 // 4.096 µs * 2^Timeout, 0 waits for ever
	RetryCnt         uint8 // up to 7
	RNRRetry         uint8 // up to 7, which tries for ever
	AltPortNum       uint8
	AltTimeout       uint8
}

func (a *AHAttr) kernel() abi.IbUverbsQpDest {
	return abi.IbUverbsQpDest{
		Dgid: a.DGID, FlowLabel: a.FlowLabel, Dlid: a.DLID, SgidIndex: a.SGIDIndex, HopLimit: a.HopLimit,
		TrafficClass: a.TrafficClass, Sl: a.SL, SrcPathBits: a.SrcPathBits, StaticRate: a.StaticRate,
		IsGlobal: bit(a.IsGlobal), PortNum: a.PortNum,
	}
}

func ahFromDest(d *abi.IbUverbsQpDest) AHAttr {
	return AHAttr{
		DGID: d.Dgid, FlowLabel: d.FlowLabel, DLID: d.Dlid, SGIDIndex: d.SgidIndex, HopLimit: d.HopLimit,
		TrafficClass: d.TrafficClass, SL: d.Sl, SrcPathBits: d.SrcPathBits, StaticRate: d.StaticRate,
		IsGlobal: d.IsGlobal != 0, PortNum: d.PortNum,
	}
}

func ahFromAttr(a *abi.IbUverbsAhAttr) AHAttr {
	return AHAttr{
		DGID: a.Grh.Dgid, FlowLabel: a.Grh.FlowLabel, SGIDIndex: a.Grh.SgidIndex, HopLimit: a.Grh.HopLimit,
		TrafficClass: a.Grh.TrafficClass, DLID: a.Dlid, SL: a.Sl, SrcPathBits: a.SrcPathBits,
		StaticRate: a.StaticRate, IsGlobal: a.IsGlobal != 0, PortNum: a.PortNum,
	}
}

// QPAttrFromKernel converts the attributes that rdma_cm proposes (INIT_QP_ATTR) and their
// mask. Bits that only the kernel may set are cleared.
func QPAttrFromKernel(k *abi.IbUverbsQpAttr) (QPAttr, QPAttrMask) {
	a := QPAttr{
		State: QPState(k.QpState), CurState: QPState(k.CurQpState), PathMTU: MTU(k.PathMtu), PathMigState: uint8(k.PathMigState),
		QKey: k.Qkey, RQPSN: k.RqPsn, SQPSN: k.SqPsn, DestQPNum: k.DestQpNum, AccessFlags: AccessFlags(k.QpAccessFlags),
		Cap: QPCap{
			MaxSendWR: k.MaxSendWr, MaxRecvWR: k.MaxRecvWr,
			MaxSendSGE: k.MaxSendSge, MaxRecvSGE: k.MaxRecvSge, MaxInline: k.MaxInlineData,
		},
		AH: ahFromAttr(&k.AhAttr), AltAH: ahFromAttr(&k.AltAhAttr),
		PKeyIndex: k.PkeyIndex, AltPKeyIndex: k.AltPkeyIndex, EnSQDAsyncNotify: k.EnSqdAsyncNotify != 0,
		SQDraining: k.SqDraining != 0, MaxRDAtomic: k.MaxRdAtomic, MaxDestRDAtomic: k.MaxDestRdAtomic,
		MinRNRTimer: k.MinRnrTimer, PortNum: k.PortNum, Timeout: k.Timeout, RetryCnt: k.RetryCnt, RNRRetry: k.RnrRetry,
		AltPortNum: k.AltPortNum, AltTimeout: k.AltTimeout,
	}
	return a, QPAttrMask(k.QpAttrMask) & (qpAttrEnd - 1)
}

func (q *QP) modifyRequest(a *QPAttr, mask QPAttrMask) abi.IbUverbsModifyQp {
	return abi.IbUverbsModifyQp{
		QpHandle: q.handle, AttrMask: uint32(mask), Dest: a.AH.kernel(), AltDest: a.AltAH.kernel(),
		Qkey: a.QKey, RqPsn: a.RQPSN, SqPsn: a.SQPSN, DestQpNum: a.DestQPNum, QpAccessFlags: uint32(a.AccessFlags),
		PkeyIndex: a.PKeyIndex, AltPkeyIndex: a.AltPKeyIndex, QpState: uint8(a.State), CurQpState: uint8(a.CurState),
		PathMtu: uint8(a.PathMTU), PathMigState: a.PathMigState, EnSqdAsyncNotify: bit(a.EnSQDAsyncNotify),
		MaxRdAtomic: a.MaxRDAtomic, MaxDestRdAtomic: a.MaxDestRDAtomic, MinRnrTimer: a.MinRNRTimer, PortNum: a.PortNum,
		Timeout: a.Timeout, RetryCnt: a.RetryCnt, RnrRetry: a.RNRRetry, AltPortNum: a.AltPortNum, AltTimeout: a.AltTimeout,
	}
}

func qpAttrFromQuery(r *abi.IbUverbsQueryQpResp) QPAttr {
	return QPAttr{
		State: QPState(r.QpState), CurState: QPState(r.CurQpState), PathMTU: MTU(r.PathMtu), PathMigState: r.PathMigState,
		QKey: r.Qkey, RQPSN: r.RqPsn, SQPSN: r.SqPsn, DestQPNum: r.DestQpNum, AccessFlags: AccessFlags(r.QpAccessFlags),
		Cap: QPCap{
			MaxSendWR: r.MaxSendWr, MaxRecvWR: r.MaxRecvWr,
			MaxSendSGE: r.MaxSendSge, MaxRecvSGE: r.MaxRecvSge, MaxInline: r.MaxInlineData,
		},
		AH: ahFromDest(&r.Dest), AltAH: ahFromDest(&r.AltDest),
		PKeyIndex: r.PkeyIndex, AltPKeyIndex: r.AltPkeyIndex, SQDraining: r.SqDraining != 0,
		MaxRDAtomic: r.MaxRdAtomic, MaxDestRDAtomic: r.MaxDestRdAtomic, MinRNRTimer: r.MinRnrTimer, PortNum: r.PortNum,
		Timeout: r.Timeout, RetryCnt: r.RetryCnt, RNRRetry: r.RnrRetry, AltPortNum: r.AltPortNum, AltTimeout: r.AltTimeout,
	}
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

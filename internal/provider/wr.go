package provider

// SGE is one piece of registered memory: a scatter/gather element.
type SGE struct {
	Addr   uint64 // address of the first byte, as given at registration
	Length uint32 // bytes
	LKey   uint32 // local key of the memory region
}

// Opcode is the operation of a send work request. The numbers are those of enum
// ibv_wr_opcode and, for rxe, of the wire format.
type Opcode uint32

// The operations. The gaps are operations of device families that are not supported here.
const (
	OpRDMAWrite       Opcode = 0
	OpRDMAWriteImm    Opcode = 1
	OpSend            Opcode = 2
	OpSendImm         Opcode = 3
	OpRDMARead        Opcode = 4
	OpCompareSwap     Opcode = 5
	OpFetchAdd        Opcode = 6
	OpLocalInvalidate Opcode = 7
	OpBindMW          Opcode = 8
	OpSendInvalidate  Opcode = 9
	OpFlush           Opcode = 14
	OpAtomicWrite     Opcode = 15
)

// AllOps is the set of all operations.
const AllOps = 1<<OpRDMAWrite | 1<<OpRDMAWriteImm | 1<<OpSend | 1<<OpSendImm | 1<<OpRDMARead |
	1<<OpCompareSwap | 1<<OpFetchAdd | 1<<OpLocalInvalidate | 1<<OpBindMW | 1<<OpSendInvalidate |
	1<<OpFlush | 1<<OpAtomicWrite

var opcodeNames = [...]string{
	OpRDMAWrite: "RDMA WRITE", OpRDMAWriteImm: "RDMA WRITE with immediate", OpSend: "SEND",
	OpSendImm: "SEND with immediate", OpRDMARead: "RDMA READ", OpCompareSwap: "COMPARE AND SWAP",
	OpFetchAdd: "FETCH AND ADD", OpLocalInvalidate: "LOCAL INVALIDATE", OpBindMW: "BIND memory window",
	OpSendInvalidate: "SEND with invalidate", OpFlush: "FLUSH", OpAtomicWrite: "ATOMIC WRITE",
}

func (o Opcode) String() string {
	if int(o) < len(opcodeNames) && opcodeNames[o] != "" {
		return opcodeNames[o]
	}
	return "opcode " + utoa(uint32(o))
}

// In tells whether the operation is in a set of operations.
func (o Opcode) In(set uint32) bool { return o < 32 && set>>o&1 != 0 }

// IsKnown tells whether it is an operation at all.
func (o Opcode) IsKnown() bool { return o.In(AllOps) }

// HasImm tells whether the operation carries immediate data.
func (o Opcode) HasImm() bool { return o == OpRDMAWriteImm || o == OpSendImm }

// IsAtomic tells whether the operation is an atomic that returns the old value.
func (o Opcode) IsAtomic() bool { return o == OpCompareSwap || o == OpFetchAdd }

// DataOps is the set of operations that carry bytes to the peer, so that they can be inline.
const DataOps = 1<<OpRDMAWrite | 1<<OpRDMAWriteImm | 1<<OpSend | 1<<OpSendImm | 1<<OpSendInvalidate | 1<<OpAtomicWrite

// HasData tells whether the operation carries bytes to the peer.
func (o Opcode) HasData() bool { return o.In(DataOps) }

// SendFlags is a bit set of enum ibv_send_flags.
type SendFlags uint32

// The flags.
const (
	SendFence     SendFlags = 1
	SendSignaled  SendFlags = 2
	SendSolicited SendFlags = 4
	SendInline    SendFlags = 8
)

// Dest is where a datagram goes.
type Dest struct {
	AV   *AV    // the way, of the address handle
	QPN  uint32 // the queue pair there
	QKey uint32 // that queue pair's Q_Key
}

// MWBind is what to bind a memory window to: struct ibv_mw_bind_info, and the keys.
type MWBind struct {
	Type   uint8 // of the window: 1 or 2
	Addr   uint64
	Length uint64
	LKey   uint32 // of the memory region; 0 with Length 0 unbinds
	MWKey  uint32 // the window's remote key before the bind
	NewKey uint32 // and after it
	Access uint32 // for peers
}

// SendWR is a work request of the send queue. It mirrors uverbs.SendWR, field by field:
// the core converts pointers.
type SendWR struct {
	ID         uint64
	Opcode     Opcode
	Flags      SendFlags
	SGL        []SGE
	Inline     [][]byte
	RemoteAddr uint64
	RKey       uint32
	Imm        uint32
	CompareAdd uint64
	Swap       uint64
	InvKey     uint32
	Flush      FlushType
	Range      FlushRange
	Length     uint32
	Dest       Dest
	Bind       *MWBind
}

// FlushType says how far a FLUSH carries the data: a bit set of enum ib_placement_type.
type FlushType uint8

// The placement types.
const (
	FlushGlobal     FlushType = 1 // visible to everyone there
	FlushPersistent FlushType = 2 // safe from a power cut
)

// FlushRange is the extent of a FLUSH: enum ib_selectivity_level.
type FlushRange uint8

// The extents.
const (
	FlushSpan FlushRange = 0 // RemoteAddr and Length
	FlushMR   FlushRange = 1 // the whole memory region
)

// RecvWR is a work request of the receive queue; it mirrors uverbs.RecvWR.
type RecvWR struct {
	ID  uint64
	SGL []SGE
}

// AV is the way to a peer, as a device wants it in a datagram's work request.
type AV struct {
	Number uint32   // the kernel's number of the address handle, 0 if the kernel gives none
	MTU    uint32   // longest datagram in bytes
	PD     any      // the protection domain of the address handle
	Raw    [96]byte // the driver's encoding of the whole way, where the number does not do
}

package uverbs

import (
	"strconv"

	"github.com/pureverbs/rdma/internal/provider"
)

// SGE is one piece of registered memory, made by [MR.SGE]: Addr, Length in bytes, LKey.
type SGE = provider.SGE

// Opcode is the operation of a send work request.
type Opcode = provider.Opcode

// The operations. [QP.Supports] tells which of them a queue pair can do.
const (
	OpSend            = provider.OpSend            // into the peer's next receive
	OpSendImm         = provider.OpSendImm         // and 32 bits for its completion
	OpSendInvalidate  = provider.OpSendInvalidate  // and takes a key of the peer's away
	OpRDMAWrite       = provider.OpRDMAWrite       // into the peer's memory, unnoticed by it
	OpRDMAWriteImm    = provider.OpRDMAWriteImm    // and 32 bits that complete the peer's next receive
	OpRDMARead        = provider.OpRDMARead        // from the peer's memory
	OpCompareSwap     = provider.OpCompareSwap     // 8 bytes of the peer's: if they are CompareAdd they become Swap
	OpFetchAdd        = provider.OpFetchAdd        // 8 bytes of the peer's: CompareAdd is added
	OpAtomicWrite     = provider.OpAtomicWrite     // 8 bytes of the peer's change at once; they are inline
	OpFlush           = provider.OpFlush           // what was written to the peer's memory gets as far as Flush says
	OpBindMW          = provider.OpBindMW          // binds a memory window of type 2
	OpLocalInvalidate = provider.OpLocalInvalidate // takes an own key away
)

// SendFlags is a bit set.
type SendFlags = provider.SendFlags

// The flags of a send work request.
const (
	SendFence     = provider.SendFence     // start only after all earlier reads and atomics are complete
	SendSignaled  = provider.SendSignaled  // report the completion also of success
	SendSolicited = provider.SendSolicited // wake a peer that armed for solicited events only
	SendInline    = provider.SendInline    // the data is in Inline, not in SGL
)

// FlushType says how far an OpFlush carries the data: a bit set.
type FlushType = provider.FlushType

// The flush types; the peer's region needs the access flag of the same name.
const (
	FlushGlobal     = provider.FlushGlobal     // visible to everyone there
	FlushPersistent = provider.FlushPersistent // safe from a power cut
)

// FlushRange is the extent of an OpFlush.
type FlushRange = provider.FlushRange

// The extents.
const (
	FlushSpan = provider.FlushSpan // Length bytes at RemoteAddr
	FlushMR   = provider.FlushMR   // the whole memory region of RKey
)

// SendWR is a send work request. The slices are read during PostSend and may be reused
// after it; the memory that SGL describes belongs to the device until the completion.
type SendWR struct {
	ID         uint64 // comes back in the completion
	Opcode     Opcode
	Flags      SendFlags
	SGL        []SGE    // the data, or for reads and atomics where it goes; none is a message of length 0
	Inline     [][]byte // with SendInline: the data, any memory, copied during PostSend
	RemoteAddr uint64   // for operations on the peer's memory: the address there, a multiple of 8 for atomics
	RKey       uint32   // for operations on the peer's memory: its remote key
	Imm        uint32   // for the operations with immediate data; the peer sees the same number
	CompareAdd uint64   // for atomics
	Swap       uint64   // for OpCompareSwap
	InvKey     uint32   // for OpSendInvalidate a key of the peer's, for OpLocalInvalidate an own one
	Flush      FlushType
	Range      FlushRange
	Length     uint32  // for OpFlush with FlushSpan, in bytes
	Dest       Dest    // for datagrams: where to, see AH.Dest
	Bind       *MWBind // for OpBindMW, see MW.Prepare
}

// RecvWR is a receive work request: where the next message goes. The slice may be reused
// after PostRecv; the memory belongs to the device until the completion.
type RecvWR struct {
	ID  uint64 // comes back in the completion
	SGL []SGE  // none receives messages of length 0 only, or immediate data
}

// The mirror types of package provider have the same fields: these lines do not compile
// otherwise.
var (
	_ = provider.SendWR(SendWR{})
	_ = provider.RecvWR(RecvWR{})
	_ = provider.WC(WC{})
)

func utoa(v uint32) string { return strconv.FormatUint(uint64(v), 10) }

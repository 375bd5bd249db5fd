package uverbs

import (
	"strconv"

	"github.com/pureverbs/rdma/internal/provider"
)

// SGE is one piece of registered memory, made by [MR.SGE]: Addr, Length in bytes, LKey.
type SGE = provider.SGE

// Opcode is the operation of a send work request.
type Opcode = provider.Opcode

// The operations.
const (
	OpSend         = provider.OpSend         // into the peer's next receive
	OpSendImm      = provider.OpSendImm      // and 32 bits for its completion
	OpRDMAWrite    = provider.OpRDMAWrite    // into the peer's memory, unnoticed by it
	OpRDMAWriteImm = provider.OpRDMAWriteImm // and 32 bits that complete the peer's next receive
	OpRDMARead     = provider.OpRDMARead     // from the peer's memory
)

// SendFlags is a bit set.
type SendFlags = provider.SendFlags

// The flags of a send work request.
const (
	SendFence     = provider.SendFence     // start only after all earlier reads are complete
	SendSignaled  = provider.SendSignaled  // report the completion also of success
	SendSolicited = provider.SendSolicited // wake a peer that armed for solicited events only
	SendInline    = provider.SendInline    // the data is in Inline, not in SGL
)

// SendWR is a send work request. The slices are read during PostSend and may be reused
// after it; the memory that SGL describes belongs to the device until the completion.
type SendWR struct {
	ID         uint64 // comes back in the completion
	Opcode     Opcode
	Flags      SendFlags
	SGL        []SGE    // the data, or for OpRDMARead where it goes; none is a message of length 0
	Inline     [][]byte // with SendInline: the data, any memory, copied during PostSend
	Imm        uint32   // for the operations with immediate data; the peer sees the same number
	RemoteAddr uint64   // for RDMA operations: address in the peer's memory region
	RKey       uint32   // for RDMA operations: the peer's remote key
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

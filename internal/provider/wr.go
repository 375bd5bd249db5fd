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

// The operations.
const (
	OpRDMAWrite    Opcode = 0
	OpRDMAWriteImm Opcode = 1
	OpSend         Opcode = 2
	OpSendImm      Opcode = 3
	OpRDMARead     Opcode = 4
)

var opcodeNames = [...]string{"RDMA WRITE", "RDMA WRITE with immediate", "SEND", "SEND with immediate", "RDMA READ"}

func (o Opcode) String() string {
	if int(o) < len(opcodeNames) {
		return opcodeNames[o]
	}
	return "opcode " + utoa(uint32(o))
}

// HasImm tells whether the operation carries immediate data.
func (o Opcode) HasImm() bool { return o == OpRDMAWriteImm || o == OpSendImm }

// IsRDMA tells whether the operation names remote memory.
func (o Opcode) IsRDMA() bool { return o == OpRDMAWrite || o == OpRDMAWriteImm || o == OpRDMARead }

// SendFlags is a bit set of enum ibv_send_flags.
type SendFlags uint32

// The flags.
const (
	SendFence     SendFlags = 1
	SendSignaled  SendFlags = 2
	SendSolicited SendFlags = 4
	SendInline    SendFlags = 8
)

// SendWR is a work request of the send queue. It mirrors uverbs.SendWR, field by field:
// the core converts pointers.
type SendWR struct {
	ID         uint64
	Opcode     Opcode
	Flags      SendFlags
	SGL        []SGE
	Inline     [][]byte
	Imm        uint32
	RemoteAddr uint64
	RKey       uint32
}

// RecvWR is a work request of the receive queue; it mirrors uverbs.RecvWR.
type RecvWR struct {
	ID  uint64
	SGL []SGE
}

package mlx5

import (
	"errors"

	"github.com/pureverbs/rdma/internal/provider"
)

const (
	// DriverName is the driver's name, without the number that its devices have.
	DriverName = "mlx5"
	// MinABI is the first version of the kernel interface that this package knows.
	MinABI = 1
	// MaxABI is the last one.
	MaxABI = 1

	// Ops is the set of operations of a queue pair. Those that its type lacks are refused by
	// Send.
	Ops = opsRC

	// InlineOps is the set of operations that take inline data.
	InlineOps = 1<<provider.OpSend | 1<<provider.OpSendImm | 1<<provider.OpSendInvalidate |
		1<<provider.OpRDMAWrite | 1<<provider.OpRDMAWriteImm

	// MaxReadSGE is how many pieces an RDMA READ can fill: the kernel's max_sge_rd.
	MaxReadSGE = 30

	// PDOut is how many bytes the driver answers when a protection domain is made. Kernels
	// before 7.2 refuse less room.
	PDOut = 4
)

// What a queue pair of each type can do.
const (
	opsUD = 1<<provider.OpSend | 1<<provider.OpSendImm
	opsUC = opsUD | 1<<provider.OpSendInvalidate | 1<<provider.OpRDMAWrite | 1<<provider.OpRDMAWriteImm |
		1<<provider.OpLocalInvalidate | 1<<provider.OpBindMW
	opsRC = opsUC | 1<<provider.OpRDMARead | 1<<provider.OpCompareSwap | 1<<provider.OpFetchAdd
)

// What Send refuses although the core let it pass.
var (
	errOpcode = errors.New("mlx5 queue pairs of this type have no such operation")
	errWindow = errors.New("mlx5 binds a memory window to at most 2 GiB")
)

// The opcodes of send requests, as they also stand in completions.
const (
	opSendInvalidate = 0x01
	opWrite          = 0x08
	opWriteImm       = 0x09
	opSend           = 0x0a
	opSendImm        = 0x0b
	opRead           = 0x10
	opCompareSwap    = 0x11
	opFetchAdd       = 0x12
	opUMR            = 0x25 // changes memory keys: binds windows and invalidates
)

// operation is what an operation of verbs is on the device.
type operation struct {
	note   sendNote // opcodes of the request and of the completion
	remote bool     // names memory of the peer's
	imm    uint32   // what of the immediate data goes along, all or nothing
	key    uint32   // and of the key to invalidate
}

const all = 1<<32 - 1

// operations has all operations; the size of the array spares Send a check.
var operations = [16]operation{
	provider.OpRDMAWrite:       {note: noteOp(opWrite, provider.WCRDMAWrite), remote: true},
	provider.OpRDMAWriteImm:    {note: noteOp(opWriteImm, provider.WCRDMAWrite), remote: true, imm: all},
	provider.OpSend:            {note: noteOp(opSend, provider.WCSend)},
	provider.OpSendImm:         {note: noteOp(opSendImm, provider.WCSend), imm: all},
	provider.OpRDMARead:        {note: noteOp(opRead, provider.WCRDMARead), remote: true},
	provider.OpCompareSwap:     {note: noteOp(opCompareSwap, provider.WCCompareSwap), remote: true},
	provider.OpFetchAdd:        {note: noteOp(opFetchAdd, provider.WCFetchAdd), remote: true},
	provider.OpLocalInvalidate: {note: noteOp(opUMR, provider.WCLocalInv)},
	provider.OpBindMW:          {note: noteOp(opUMR, provider.WCBindMW)},
	provider.OpSendInvalidate:  {note: noteOp(opSendInvalidate, provider.WCSend), key: all},
}

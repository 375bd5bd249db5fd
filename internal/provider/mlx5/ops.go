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
	code uint8 // of the request
	done uint8 // of the completion: a provider.WCOpcode
}

// operations has all operations; the size of the array spares Send a check.
var operations = [16]operation{
	provider.OpRDMAWrite:       {opWrite, uint8(provider.WCRDMAWrite)},
	provider.OpRDMAWriteImm:    {opWriteImm, uint8(provider.WCRDMAWrite)},
	provider.OpSend:            {opSend, uint8(provider.WCSend)},
	provider.OpSendImm:         {opSendImm, uint8(provider.WCSend)},
	provider.OpRDMARead:        {opRead, uint8(provider.WCRDMARead)},
	provider.OpCompareSwap:     {opCompareSwap, uint8(provider.WCCompareSwap)},
	provider.OpFetchAdd:        {opFetchAdd, uint8(provider.WCFetchAdd)},
	provider.OpLocalInvalidate: {opUMR, uint8(provider.WCLocalInv)},
	provider.OpBindMW:          {opUMR, uint8(provider.WCBindMW)},
	provider.OpSendInvalidate:  {opSendInvalidate, uint8(provider.WCSend)},
}

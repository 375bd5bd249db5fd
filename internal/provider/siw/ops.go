package siw

import (
	"errors"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

const (
	// Ops is the set of operations of a queue pair. The kernel takes LOCAL INVALIDATE from
	// a mapped queue as well, although the C library does not offer it.
	Ops = 1<<provider.OpSend | 1<<provider.OpSendInvalidate | 1<<provider.OpRDMAWrite |
		1<<provider.OpRDMARead | 1<<provider.OpLocalInvalidate

	// InlineOps is the set of operations that take inline data. It lacks SEND with
	// invalidate: the kernel refuses to take such a request, and the queue never moves again.
	InlineOps = 1<<provider.OpSend | 1<<provider.OpRDMAWrite

	// MaxReadSGE is how many pieces an RDMA READ can fill.
	MaxReadSGE = 1
)

// maxMessage: the kernel adds the pieces up in an int.
const maxMessage = 1<<31 - 1

// What Send refuses. The kernel would not fail such a request but stop at it.
var (
	errOpcode  = errors.New("siw has no such operation")
	errInline  = errors.New("siw takes no inline data with this operation")
	errMessage = errors.New("siw sends at most 2 GiB - 1 byte in one message")
)

// wcStatus translates enum siw_wc_status.
var wcStatus = [abi.SIW_NUM_WC_STATUS]provider.WCStatus{
	abi.SIW_WC_SUCCESS:         provider.WCSuccess,
	abi.SIW_WC_LOC_LEN_ERR:     provider.WCLocalLengthError,
	abi.SIW_WC_LOC_PROT_ERR:    provider.WCLocalProtectionError,
	abi.SIW_WC_LOC_QP_OP_ERR:   provider.WCLocalQPOperationError,
	abi.SIW_WC_WR_FLUSH_ERR:    provider.WCFlushError,
	abi.SIW_WC_BAD_RESP_ERR:    provider.WCBadResponseError,
	abi.SIW_WC_LOC_ACCESS_ERR:  provider.WCLocalAccessError,
	abi.SIW_WC_REM_ACCESS_ERR:  provider.WCRemoteAccessError,
	abi.SIW_WC_REM_INV_REQ_ERR: provider.WCRemoteInvalidRequest,
	abi.SIW_WC_GENERAL_ERR:     provider.WCGeneralError,
}

// status translates what stands in a completion. The number itself is the vendor's error
// where it is none that is known.
func status(raw uint16) (s provider.WCStatus, vendor uint32) {
	if int(raw) < len(wcStatus) {
		return wcStatus[raw], 0
	}
	return provider.WCGeneralError, uint32(raw)
}

// unknownOp plus siw's number stands for an operation that has no name in verbs.
const unknownOp provider.WCOpcode = 1 << 16

// wcOpcode translates enum siw_opcode as it stands in a completion.
var wcOpcode = [abi.SIW_NUM_OPCODES]provider.WCOpcode{
	abi.SIW_OP_WRITE:           provider.WCRDMAWrite,
	abi.SIW_OP_READ:            provider.WCRDMARead,
	abi.SIW_OP_READ_LOCAL_INV:  provider.WCRDMARead,
	abi.SIW_OP_SEND:            provider.WCSend,
	abi.SIW_OP_SEND_WITH_IMM:   provider.WCSend,
	abi.SIW_OP_SEND_REMOTE_INV: provider.WCSend,
	abi.SIW_OP_FETCH_AND_ADD:   provider.WCFetchAdd,
	abi.SIW_OP_COMP_AND_SWAP:   provider.WCCompareSwap,
	abi.SIW_OP_RECEIVE:         provider.WCRecv,
	abi.SIW_OP_READ_RESPONSE:   unknownOp + abi.SIW_OP_READ_RESPONSE,
	abi.SIW_OP_INVAL_STAG:      provider.WCLocalInv,
	abi.SIW_OP_REG_MR:          unknownOp + abi.SIW_OP_REG_MR,
}

func opcode(raw uint8) provider.WCOpcode {
	if int(raw) < len(wcOpcode) {
		return wcOpcode[raw]
	}
	return unknownOp + provider.WCOpcode(raw)
}

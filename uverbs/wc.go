package uverbs

import (
	"fmt"

	"github.com/pureverbs/rdma/internal/provider"
)

// WC is a work completion. If Status is not WCSuccess only ID, Status, QPNum and VendorErr
// mean something. Completions of the send queue come in the order of posting, those of the
// receive queue too; between the two queues there is no order: the answer to a request may
// be seen before the completion of the request's own send.
type WC struct {
	ID        uint64 // of the work request
	Status    WCStatus
	Opcode    WCOpcode
	VendorErr uint32  // the device's own code of an error
	ByteLen   uint32  // bytes received or read
	Imm       uint32  // immediate data, if HasImm
	QPNum     uint32  // the queue pair here
	SrcQP     uint32  // the queue pair of the sender
	Flags     WCFlags // test by bit
	PKeyIndex uint16
	SLID      uint16
	SL        uint8
	PathBits  uint8
	InvKey    uint32 // the key that the peer took away, if HasInv
}

// HasImm tells whether the completion carries immediate data.
func (w *WC) HasImm() bool { return w.Flags&WCWithImm != 0 }

// HasInv tells whether the peer took a key of ours away.
func (w *WC) HasInv() bool { return w.Flags&WCWithInv != 0 }

// HasGRH tells whether a routing header came along: for datagrams, in the first GRHSize
// bytes of the receive. rxe says so of every completion.
func (w *WC) HasGRH() bool { return w.Flags&WCGRH != 0 }

// Err returns nil for success, otherwise an error that says which queue pair failed and why.
func (w *WC) Err() error {
	if w.Status == WCSuccess {
		return nil
	}
	return &WCError{Status: w.Status, QPNum: w.QPNum, VendorErr: w.VendorErr}
}

// WCError is the failure of a work request.
type WCError struct {
	Status    WCStatus
	QPNum     uint32
	VendorErr uint32
}

func (e *WCError) Error() string {
	return fmt.Sprintf("work request on queue pair %d: %v (vendor error %#x)", e.QPNum, e.Status, e.VendorErr)
}

// WCStatus says how a work request ended.
type WCStatus = provider.WCStatus

// The statuses that devices of today report.
const (
	WCSuccess               = provider.WCSuccess
	WCLocalLengthError      = provider.WCLocalLengthError
	WCLocalQPOperationError = provider.WCLocalQPOperationError
	WCLocalProtectionError  = provider.WCLocalProtectionError
	WCFlushError            = provider.WCFlushError
	WCBindError             = provider.WCBindError
	WCBadResponseError      = provider.WCBadResponseError
	WCLocalAccessError      = provider.WCLocalAccessError
	WCRemoteInvalidRequest  = provider.WCRemoteInvalidRequest
	WCRemoteAccessError     = provider.WCRemoteAccessError
	WCRemoteOperationError  = provider.WCRemoteOperationError
	WCRetryExceeded         = provider.WCRetryExceeded
	WCRNRRetryExceeded      = provider.WCRNRRetryExceeded
	WCRemoteAborted         = provider.WCRemoteAborted
	WCFatalError            = provider.WCFatalError
	WCGeneralError          = provider.WCGeneralError
)

// WCOpcode says what completed.
type WCOpcode = provider.WCOpcode

// The completed operations.
const (
	WCSend         = provider.WCSend
	WCRDMAWrite    = provider.WCRDMAWrite
	WCRDMARead     = provider.WCRDMARead
	WCCompareSwap  = provider.WCCompareSwap
	WCFetchAdd     = provider.WCFetchAdd
	WCAtomicWrite  = provider.WCAtomicWrite
	WCFlush        = provider.WCFlush
	WCBindMW       = provider.WCBindMW
	WCLocalInv     = provider.WCLocalInv
	WCRecv         = provider.WCRecv
	WCRecvWriteImm = provider.WCRecvRDMAWriteI // the peer's RDMA WRITE with immediate
)

// WCFlags is a bit set.
type WCFlags = provider.WCFlags

// The flags of a completion.
const (
	WCGRH     = provider.WCGRH     // a global routing header came along
	WCWithImm = provider.WCWithImm // Imm is valid
	WCWithInv = provider.WCWithInv // a remote key was invalidated
)

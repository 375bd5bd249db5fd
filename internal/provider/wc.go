package provider

import "strconv"

// WC is a work completion; it mirrors uverbs.WC, field by field.
type WC struct {
	ID        uint64
	Status    WCStatus
	Opcode    WCOpcode
	VendorErr uint32
	ByteLen   uint32
	Imm       uint32
	QPNum     uint32
	SrcQP     uint32
	Flags     WCFlags
	PKeyIndex uint16
	SLID      uint16
	SL        uint8
	PathBits  uint8
	InvKey    uint32
}

// WCStatus says how a work request ended: enum ibv_wc_status.
type WCStatus uint32

// The statuses (IBTA volume 1, 11.6.2).
const (
	WCSuccess WCStatus = iota
	WCLocalLengthError
	WCLocalQPOperationError
	WCLocalEECOperationError
	WCLocalProtectionError
	WCFlushError
	WCBindError
	WCBadResponseError
	WCLocalAccessError
	WCRemoteInvalidRequest
	WCRemoteAccessError
	WCRemoteOperationError
	WCRetryExceeded
	WCRNRRetryExceeded
	WCLocalRDDViolation
	WCRemoteInvalidRDRequest
	WCRemoteAborted
	WCInvalidEECNumber
	WCInvalidEECState
	WCFatalError
	WCResponseTimeout
	WCGeneralError
)

var statusNames = [...]string{
	"success",
	"local length error: the message does not fit the buffer",
	"local QP operation error",
	"local EEC operation error",
	"local protection error: no such memory region, or not in this protection domain",
	"flushed: the queue pair is in error, or was closed",
	"memory window bind error",
	"bad response",
	"local access error: the memory region does not allow the write",
	"remote invalid request: message too long, or operation not allowed on the peer's queue pair",
	"remote access error: wrong key, address or permission at the peer",
	"remote operation error",
	"transport retries exceeded: the peer does not answer",
	"receiver-not-ready retries exceeded: the peer posts no receive",
	"local RDD violation",
	"remote invalid RD request",
	"remote aborted",
	"invalid EEC number",
	"invalid EEC state",
	"fatal error",
	"response timeout",
	"general error",
}

func (s WCStatus) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "status " + utoa(uint32(s))
}

// WCOpcode says what completed: enum ibv_wc_opcode.
type WCOpcode uint32

// The completed operations.
const (
	WCSend           WCOpcode = 0
	WCRDMAWrite      WCOpcode = 1
	WCRDMARead       WCOpcode = 2
	WCCompareSwap    WCOpcode = 3
	WCFetchAdd       WCOpcode = 4
	WCBindMW         WCOpcode = 5
	WCLocalInv       WCOpcode = 6
	WCFlush          WCOpcode = 8
	WCAtomicWrite    WCOpcode = 9
	WCRecv           WCOpcode = 128
	WCRecvRDMAWriteI WCOpcode = 129
)

var wcOpcodeNames = map[WCOpcode]string{
	WCSend: "SEND", WCRDMAWrite: "RDMA WRITE", WCRDMARead: "RDMA READ", WCCompareSwap: "COMPARE AND SWAP",
	WCFetchAdd: "FETCH AND ADD", WCBindMW: "BIND memory window", WCLocalInv: "LOCAL INVALIDATE",
	WCFlush: "FLUSH", WCAtomicWrite: "ATOMIC WRITE",
	WCRecv: "RECV", WCRecvRDMAWriteI: "RECV of RDMA WRITE with immediate",
}

func (o WCOpcode) String() string {
	if s, ok := wcOpcodeNames[o]; ok {
		return s
	}
	return "opcode " + utoa(uint32(o))
}

// WCFlags is a bit set of enum ibv_wc_flags. Devices set bits of their own accord (rxe
// always WCGRH), so test by bit.
type WCFlags uint32

// The flags.
const (
	WCGRH     WCFlags = 1
	WCWithImm WCFlags = 2
	WCWithInv WCFlags = 8
)

func utoa(v uint32) string { return strconv.FormatUint(uint64(v), 10) }

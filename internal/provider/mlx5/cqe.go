package mlx5

import "github.com/pureverbs/rdma/internal/provider"

// Where things are in a completion entry; in one that tells of an error the syndromes are in
// place of the time stamp.
const (
	cqeSize     = 64
	offPath     = 17 // low 7 bits: path bits
	offSLID     = 22
	offSource   = 24 // service level, GRH, and 24 bits of the sender's number
	offIndex    = 32 // low 24 bits: user index or SRQ
	offImm      = 36 // immediate data, invalidated key, or P_Key index
	offBytes    = 44
	offVendor   = 54
	offSyndrome = 55
	offQP       = 56 // 8 bits: opcode of the request; 24: queue pair
	offCounter  = 60 // of the request; then the signature
	offOwner    = 63
)

// The kinds of completions, in the high half of the last byte.
const (
	cqeRequester  = 0
	cqeRecvWrite  = 1 // by an RDMA WRITE with immediate data
	cqeRecv       = 2
	cqeRecvImm    = 3
	cqeRecvInv    = 4
	cqeResize     = 5 // the device goes on in the new queue
	cqeSendFailed = 13
	cqeRecvFailed = 14
	cqeInvalid    = 15 // not written yet
)

// tail is what the word at offCounter says.
type tail uint32

func (t tail) kind() uint32    { return uint32(t) >> 4 & 15 }
func (t tail) owner() uint8    { return uint8(t) & 1 }
func (t tail) counter() uint16 { return uint16(t >> 16) }
func (t tail) format() uint32  { return uint32(t) >> 2 & 3 } // data in the entry, or several entries in one

// statuses translates syndromes. What is not in it is a general error, and 0 is no syndrome.
var statuses = [256]provider.WCStatus{
	0x01: provider.WCLocalLengthError,
	0x02: provider.WCLocalQPOperationError,
	0x04: provider.WCLocalProtectionError,
	0x05: provider.WCFlushError,
	0x06: provider.WCBindError,
	0x10: provider.WCBadResponseError,
	0x11: provider.WCLocalAccessError,
	0x12: provider.WCRemoteInvalidRequest,
	0x13: provider.WCRemoteAccessError,
	0x14: provider.WCRemoteOperationError,
	0x15: provider.WCRetryExceeded,
	0x16: provider.WCRNRRetryExceeded,
	0x22: provider.WCRemoteAborted,
}

func status(syndrome uint8) provider.WCStatus {
	if s := statuses[syndrome]; s != provider.WCSuccess {
		return s
	}
	return provider.WCGeneralError
}

// decodeSend reads what only some requests have.
func decodeSend(wc *provider.WC, e addr, code uint8) {
	if code == opSend || code == opWrite {
		return
	}
	switch code {
	case opSendImm, opWriteImm:
		wc.Flags = provider.WCWithImm
	case opRead:
		wc.ByteLen = e.get32(offBytes)
	case opCompareSwap, opFetchAdd:
		wc.ByteLen = atomicSize
	}
}

const (
	lowQPN   = 1<<24 - 1
	grhShift = 28
	grhMask  = 3
	slShift  = 24
	slMask   = 15
)

// decodeReceive reads what a completed receive tells of the message.
func decodeReceive(wc *provider.WC, e addr, kind uint32) {
	wc.Opcode = provider.WCRecv
	source := e.get32(offSource)
	wc.ByteLen = e.get32(offBytes)
	wc.SrcQP = source & lowQPN
	wc.SL = uint8(source >> slShift & slMask)
	wc.SLID = e.get16(offSLID)
	wc.PathBits = e.get8(offPath) & 0x7f
	if source>>grhShift&grhMask != 0 {
		wc.Flags = provider.WCGRH
	}
	switch imm := e.get32(offImm); kind {
	case cqeRecvWrite:
		wc.Opcode = provider.WCRecvRDMAWriteI
		fallthrough
	case cqeRecvImm:
		wc.Flags |= provider.WCWithImm
		wc.Imm = imm
	case cqeRecvInv:
		wc.Flags |= provider.WCWithInv
		wc.InvKey = imm
	default:
		wc.PKeyIndex = uint16(imm)
	}
}

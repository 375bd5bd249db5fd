//go:build linux

package fakekernel

import (
	"encoding/binary"
	"time"

	"github.com/pureverbs/rdma/abi"
)

// cqe64 is a completion as the device writes it, in its byte order. Behind the fields is
// where they are.
type cqe64 [cqeSize]byte

const (
	cqeFlagsQPN  = 24 // of the sender, its service level, whether there is a header
	cqeHeader    = 29
	cqeIndex     = 32 // the user's index of the queue pair, or the number of the shared queue
	cqeImm       = 36
	cqeBytes     = 44
	cqeTime      = 48
	cqeVendor    = 54
	cqeSyndrome  = 55
	cqeOpcodeQPN = 56 // the opcode of the request, the number of the queue pair
	cqeCounter   = 60

	cqeOwner = 1
)

// Opcodes of completions.
const (
	cqeRequest = iota
	cqeRecvWriteImm
	cqeRecvSend
	cqeRecvSendImm
	cqeRecvSendInv
	cqeResize
	cqeRequestError  = 13
	cqeResponseError = 14
)

// The id of a request is what its completion says of it: the counter, and of sends the
// opcode. Receives have a bit of their own.
const (
	recvID       = 1 << 63
	opcodeOfID   = 16
	noUserIndex  = 0xff_ffff
	cqeHasHeader = 2 << 28
	cqeIPv6      = 1 << 2
	cqeIPv4      = 2 << 2
)

func (e *cqe64) setOpcode(op uint8)      { e[63] = op << 4 }
func (e *cqe64) put16(off int, v uint16) { binary.BigEndian.PutUint16(e[off:], v) }
func (e *cqe64) put32(off int, v uint32) { binary.BigEndian.PutUint32(e[off:], v) }
func (e *cqe64) setTime(d time.Duration) { binary.BigEndian.PutUint64(e[cqeTime:], uint64(d)) }
func (e *cqe64) syndrome(vendor, s byte) { e[cqeVendor], e[cqeSyndrome] = vendor, s }

func fromPeer(wc *abi.IbUverbsWc) bool { return wc.WrId&recvID != 0 }

// fill makes the completion of a queue pair of this file.
func (e *cqe64) fill(f *verbsFile, wc *abi.IbUverbsWc) {
	q := f.dev.qps[wc.QpNum]
	e.put32(cqeIndex, userIndex(q, fromPeer(wc)))
	e.put32(cqeOpcodeQPN, uint32(uint8(wc.WrId>>opcodeOfID))<<24|wc.QpNum)
	e.put16(cqeCounter, uint16(wc.WrId))
	switch {
	case wc.Status != statusSuccess:
		e.fail(wc)
		return
	case fromPeer(wc):
		e.receive(q, wc)
	case wc.Opcode == abi.IB_UVERBS_WC_RDMA_READ:
		e.put32(cqeBytes, wc.ByteLen)
	case wc.Opcode == abi.IB_UVERBS_WC_COMP_SWAP || wc.Opcode == abi.IB_UVERBS_WC_FETCH_ADD:
		e.put32(cqeBytes, 8)
	}
	e.setTime(time.Since(f.k.born))
}

// userIndex: without it the user goes by the number, of a shared queue first.
func userIndex(q *qp, recv bool) uint32 {
	hw := q.mlx5()
	switch {
	case hw == nil:
		return 0
	case hw.index != noUserIndex:
		return hw.index
	case recv && q.srq != nil:
		return q.srq.rq.(*mlx5SRQ).num
	}
	return 0
}

func (e *cqe64) receive(q *qp, wc *abi.IbUverbsWc) {
	e.setOpcode(recvOpcode(wc))
	e.put32(cqeBytes, wc.ByteLen)
	copy(e[cqeImm:], bytesOf(&wc.Ex)) // big-endian as it is
	if wc.WcFlags&wcWithInv != 0 {
		e.put32(cqeImm, *wc.ExInvalidateRkey())
	}
	if q.typ != abi.IB_UVERBS_QPT_UD {
		return
	}
	e.put32(cqeFlagsQPN, cqeHasHeader|wc.SrcQp)
	e[cqeHeader] = cqeIPv6
	if q.f.k.nic.grh[0] == 0 {
		e[cqeHeader] = cqeIPv4
	}
}

func recvOpcode(wc *abi.IbUverbsWc) uint8 {
	switch {
	case wc.Opcode == wcRecvWithImm:
		return cqeRecvWriteImm
	case wc.WcFlags&wcWithImm != 0:
		return cqeRecvSendImm
	case wc.WcFlags&wcWithInv != 0:
		return cqeRecvSendInv
	}
	return cqeRecvSend
}

// fail: the syndrome stands for the status. The vendor's are those that users report most.
func (e *cqe64) fail(wc *abi.IbUverbsWc) {
	e.setOpcode(cqeRequestError)
	if fromPeer(wc) {
		e.setOpcode(cqeResponseError)
	}
	switch wc.Status {
	case statusLocalLength:
		e.syndrome(0xd5, 0x01)
	case statusLocalQPOp:
		e.syndrome(0x68, 0x02)
	case statusLocalProtection:
		e.syndrome(0x51, 0x04)
	case statusFlush:
		e.syndrome(0xf9, 0x05)
	case statusBind:
		e.syndrome(0x26, 0x06)
	case statusLocalAccess:
		e.syndrome(0x52, 0x11)
	case statusRemoteInvalid:
		e.syndrome(0x8a, 0x12)
	case statusRemoteAccess:
		e.syndrome(0x88, 0x13)
	case statusRemoteOp:
		e.syndrome(0x89, 0x14)
	case statusRetryExceeded:
		e.syndrome(0x81, 0x15)
	case statusRNRRetryExceeded:
		e.syndrome(0x87, 0x16)
	}
}

package mlx5

import (
	"fmt"
	"math/bits"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

const (
	blockSize  = 64
	blockShift = 6
	pieceSize  = 16 // of a segment that names memory: the unit of all lengths of requests
	maxUnits   = 63 // of 16 bytes in a request: the device takes 6 bits
	inlineHead = 4  // bytes before inline data
	atomicSize = 8

	headControl = 16
	headRemote  = 16 // address and key
	headAtomic  = 16 // operands
	headWay     = 48 // of a datagram

	// What a request is counted for before its pieces. For a connection it is more than any
	// request needs: the size of one that binds a window.
	overheadRC = 192
	overheadUD = headControl + headWay
)

// sendSize is how a send queue is laid out.
type sendSize struct {
	blocks uint32 // power of two, 0 without a queue
	limit  uint32 // requests that can be open
	inline uint32 // bytes a request can carry
}

// pow2 rounds up to a power of two; n is at most 1<<31.
func pow2(n uint32) uint32 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len32(n-1)
}

func alignTo(n, unit uint32) uint32 { return (n + unit - 1) &^ (unit - 1) }

// sizeSend computes a send queue. Sizes and rounding are libmlx5's, for the kernel takes the
// result without a check of its own.
func (l *limits) sizeSend(datagram bool, c *provider.QPCap) (s sendSize, err error) {
	overhead, head := uint32(overheadRC), uint32(headControl+headRemote)
	if datagram {
		overhead, head = overheadUD, overheadUD
	}
	if l.sendBytes < overhead || c.MaxSendSGE > (l.sendBytes-overhead)/pieceSize || c.MaxSendSGE > maxUnits-head/pieceSize {
		return s, fmt.Errorf("%w: %d pieces a send request", syscall.EINVAL, c.MaxSendSGE)
	}
	data := c.MaxSendSGE * pieceSize
	if c.MaxInline > 0 {
		if c.MaxInline > l.sendBytes || c.MaxInline > mostInline(head) {
			return s, fmt.Errorf("%w: %d bytes inline", syscall.EINVAL, c.MaxInline)
		}
		data = max(data, alignTo(inlineHead+c.MaxInline, pieceSize))
	}
	size := alignTo(overhead+data, blockSize)
	switch {
	case size > l.sendBytes:
		return s, fmt.Errorf("%w: send requests of %d bytes, the device takes %d", syscall.EINVAL, size, l.sendBytes)
	case c.MaxSendWR == 0:
		return sendSize{inline: c.MaxInline}, nil
	case c.MaxSendWR > l.sendBlocks || pow2(c.MaxSendWR*size)/blockSize > l.sendBlocks:
		return s, fmt.Errorf("%w: %d send requests of %d bytes", syscall.EINVAL, c.MaxSendWR, size)
	}
	s.blocks = pow2(c.MaxSendWR*size) / blockSize
	s.limit = s.blocks * blockSize / size
	if size > overhead { // else not even the length would fit
		s.inline = min(size-overhead-inlineHead, mostInline(head))
	}
	return s, nil
}

// mostInline is how many bytes fit behind head so that the device can count the units.
func mostInline(head uint32) uint32 { return maxUnits*pieceSize - head - inlineHead }

// recvSize is how a receive queue is laid out.
type recvSize struct {
	slots  uint32 // power of two, 0 without a queue
	shift  uint32 // log2 of a slot's bytes
	pieces uint32
}

// sizeRecv computes a receive queue of a queue pair.
func (l *limits) sizeRecv(c *provider.QPCap) (r recvSize, err error) {
	switch {
	case c.MaxRecvWR == 0:
		return recvSize{}, nil
	case c.MaxRecvWR > l.recvWR:
		return r, fmt.Errorf("%w: %d receive requests", syscall.EINVAL, c.MaxRecvWR)
	case c.MaxRecvSGE > l.recvBytes/pieceSize || pow2(max(1, c.MaxRecvSGE))*pieceSize > l.recvBytes:
		return r, fmt.Errorf("%w: %d pieces a receive request", syscall.EINVAL, c.MaxRecvSGE)
	}
	r.pieces = pow2(max(1, c.MaxRecvSGE))
	size := r.pieces * pieceSize
	r.shift = uint32(bits.TrailingZeros32(size))
	r.slots = max(blockSize, pow2(c.MaxRecvWR)*size) / size
	return r, nil
}

// typeOps is the set of operations of a type of queue pairs; ok is false for a type that
// this package does not make.
func typeOps(typ uint32) (ops uint32, ok bool) {
	switch typ {
	case abi.IB_UVERBS_QPT_RC:
		return opsRC, true
	case abi.IB_UVERBS_QPT_UC:
		return opsUC, true
	case abi.IB_UVERBS_QPT_UD:
		return opsUD, true
	}
	return 0, false
}

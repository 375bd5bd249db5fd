package provider

import (
	"errors"

	"github.com/pureverbs/rdma/mmio"
)

// A Mapper maps length bytes at offset off of the device's file, readable and writable.
type Mapper func(off int64, length int) (*mmio.Region, error)

// An Allocator gives the memory of queues that the driver's user makes, and not the kernel:
// zeroed, page-aligned, off the Go heap. Free takes exactly what Alloc returned.
type Allocator struct {
	Alloc func(size int) ([]byte, error)
	Free  func([]byte) error
}

var (
	// ErrFull says that a queue has no free slot: poll completions, then post again.
	ErrFull = errors.New("queue is full")
	// ErrCorrupt says that a shared queue holds what its owner would never write.
	ErrCorrupt = errors.New("shared queue is corrupt")
)

// MinPostSize is the least size of a work request that the command POST_SEND accepts,
// although drivers whose queues are shared memory take none from it: struct
// ib_uverbs_send_wr.
const MinPostSize = 56

// QPCap is the size of a queue pair: struct ibv_qp_cap.
type QPCap struct {
	MaxSendWR, MaxRecvWR   uint32 // work requests
	MaxSendSGE, MaxRecvSGE uint32 // pieces a work request
	MaxInline              uint32 // bytes a work request carries inline
}

package provider

import (
	"errors"

	"github.com/pureverbs/rdma/mmio"
)

// A Mapper maps length bytes at offset off of the device's file, readable and writable.
type Mapper func(off int64, length int) (*mmio.Region, error)

var (
	// ErrFull says that a queue has no free slot: poll completions, then post again.
	ErrFull = errors.New("queue is full")
	// ErrCorrupt says that a shared queue holds what its owner would never write.
	ErrCorrupt = errors.New("shared queue is corrupt")
)

// QPCap is the size of a queue pair: struct ibv_qp_cap.
type QPCap struct {
	MaxSendWR, MaxRecvWR   uint32 // work requests
	MaxSendSGE, MaxRecvSGE uint32 // pieces a work request
	MaxInline              uint32 // bytes a work request carries inline
}

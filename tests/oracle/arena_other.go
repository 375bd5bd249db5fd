//go:build !linux

package oracle

import "errors"

// NewArena needs Linux.
func NewArena() ([]byte, error) { return nil, errors.New("RDMA needs Linux") }

// FaultFD needs Linux.
func FaultFD() int { return 0 }

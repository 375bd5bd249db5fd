//go:build !amd64 || race

package mmio

import "sync/atomic"

func publish32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

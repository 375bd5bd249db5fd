//go:build (amd64 || arm64) && !race

package mmio

//go:noescape
func doorbell(record *uint32, v uint32, register *uint64, bell uint64)

//go:noescape
func doorbellCopy(record *uint32, v uint32, dst, src *[64]byte, n int)

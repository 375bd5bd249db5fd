package uverbs

import (
	"unsafe"

	"github.com/pureverbs/rdma/internal/provider"
)

// The mirror types of package provider have the same fields in the same order, see wr.go: so
// a slice of one is a slice of the other.

func mirrorWCs(wcs []WC) []provider.WC { return *(*[]provider.WC)(unsafe.Pointer(&wcs)) }

func mirrorRecvs(wrs []RecvWR) []provider.RecvWR {
	return *(*[]provider.RecvWR)(unsafe.Pointer(&wrs))
}

func mirrorSends(wrs []SendWR) []provider.SendWR {
	return *(*[]provider.SendWR)(unsafe.Pointer(&wrs))
}

package uapi

import (
	"context"
	"unsafe"

	"github.com/pureverbs/rdma/abi"
)

// stub is a File that shows requests to the test.
type stub struct {
	File
	ioctl func(hdr *abi.IbUverbsIoctlHdr, attrs []abi.IbUverbsAttr) error
	write func(p []byte) (int, error)
}

func (s *stub) Ioctl(req uint32, arg unsafe.Pointer) error {
	if req != abi.RDMA_VERBS_IOCTL {
		panic("not the uverbs request")
	}
	hdr := (*abi.IbUverbsIoctlHdr)(arg)
	attrs := unsafe.Slice((*abi.IbUverbsAttr)(unsafe.Add(arg, unsafe.Sizeof(*hdr))), hdr.NumAttrs)
	return s.ioctl(hdr, attrs)
}

func (s *stub) Write(_ context.Context, p []byte) (int, error) { return s.write(p) }

// at returns n bytes at an address that a request carries.
func at(addr uint64, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n)
}

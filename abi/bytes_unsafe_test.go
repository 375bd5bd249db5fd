package abi

import "unsafe"

// bytesOf shows a value as it lies in memory, which is how the kernel sees it.
func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

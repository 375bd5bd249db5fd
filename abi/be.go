package abi

import (
	"math/bits"
	"strconv"
)

// BE16 is the kernel's __be16: its bytes are in network order whatever the
// machine. Zero is zero in either order.
type BE16 uint16

// BE32 is the kernel's __be32.
type BE32 uint32

// BE64 is the kernel's __be64.
type BE64 uint64

// ToBE16 converts a number of the machine's byte order.
func ToBE16(v uint16) BE16 {
	if bigEndian {
		return BE16(v)
	}
	return BE16(bits.ReverseBytes16(v))
}

// ToBE32 converts a number of the machine's byte order.
func ToBE32(v uint32) BE32 {
	if bigEndian {
		return BE32(v)
	}
	return BE32(bits.ReverseBytes32(v))
}

// ToBE64 converts a number of the machine's byte order.
func ToBE64(v uint64) BE64 {
	if bigEndian {
		return BE64(v)
	}
	return BE64(bits.ReverseBytes64(v))
}

// Get returns the number in the machine's byte order. Swapping is its own
// inverse, hence the same function for both directions.
func (b BE16) Get() uint16 { return uint16(ToBE16(uint16(b))) }

// Get returns the number in the machine's byte order.
func (b BE32) Get() uint32 { return uint32(ToBE32(uint32(b))) }

// Get returns the number in the machine's byte order.
func (b BE64) Get() uint64 { return uint64(ToBE64(uint64(b))) }

// Set stores a number of the machine's byte order.
func (b *BE16) Set(v uint16) { *b = ToBE16(v) }

// Set stores a number of the machine's byte order.
func (b *BE32) Set(v uint32) { *b = ToBE32(v) }

// Set stores a number of the machine's byte order.
func (b *BE64) Set(v uint64) { *b = ToBE64(v) }

// String prints the number, not its stored form, so that logs and test
// differences read right.
func (b BE16) String() string { return hex(uint64(b.Get())) }

// String prints the number, not its stored form.
func (b BE32) String() string { return hex(uint64(b.Get())) }

// String prints the number, not its stored form.
func (b BE64) String() string { return hex(b.Get()) }

func hex(v uint64) string { return "0x" + strconv.FormatUint(v, 16) }

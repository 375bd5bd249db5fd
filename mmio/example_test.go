package mmio_test

import (
	"fmt"

	"github.com/pureverbs/rdma/mmio"
)

// A ring of four slots that is shared with the kernel: header words at fixed
// offsets, indices that are stored masked, one slot that stays empty.
func Example_sharedRing() {
	const mask = 3
	ring := mmio.NewRegion(make([]byte, 4096), nil) // a mapping of the device file
	defer ring.Close()
	prod, err := ring.Uint32(128)
	if err != nil {
		fmt.Println(err)
		return
	}
	cons, err := ring.Uint32(256)
	if err != nil {
		fmt.Println(err)
		return
	}

	// Producer: while a slot is free, fill it, then hand it over.
	posted := 0
	for mmio.Free(*prod, mmio.LoadAcquire32(cons), mask) > 0 {
		ring.Bytes()[384+*prod] = byte('a' + posted)
		mmio.StoreRelease32(prod, mmio.Next(*prod, mask))
		posted++
	}

	// Consumer: see what is there, read it, then give the slots back.
	n := mmio.Used(mmio.LoadAcquire32(prod), *cons, mask)
	for range n {
		fmt.Printf("slot %d holds %c\n", *cons, ring.Bytes()[384+*cons])
		mmio.StoreRelease32(cons, mmio.Next(*cons, mask))
	}
	fmt.Println(posted, "posted,", n, "read")
	// Output:
	// slot 0 holds a
	// slot 1 holds b
	// slot 2 holds c
	// 3 posted, 3 read
}

// A window outside of the mapping, or one that is not aligned, is an error.
func ExampleRegion_Uint32() {
	r := mmio.NewRegion(make([]byte, 4096), nil)
	_, err := r.Uint32(4096)
	fmt.Println(err)
	_, err = r.Uint32(2)
	fmt.Println(err)
	// Output:
	// locate 4 bytes at offset 4096: outside the mapping of 4096 bytes
	// locate 4 bytes at offset 2: not 4-byte aligned
}

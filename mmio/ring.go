package mmio

// The functions below do the index arithmetic of rings that have a power of two
// of slots, of which at most mask = slots-1 are in use at a time, so that equal
// indices mean empty. They take indices stored masked (rxe: 0 <= i <= mask) and
// free-running ones (mlx5: counting on through 2^32) alike, because they reduce
// what they compute, never what they are given. Whatever a kernel or a device
// writes into an index, the results stay within the ring.

// IsMask reports whether mask is one less than a power of two and at least 1: the
// mask of a ring that can hold an entry. Check with it the mask read from a
// mapping before the ring is used.
func IsMask(mask uint32) bool { return mask != 0 && mask&(mask+1) == 0 }

// Next returns the index after i, reduced to the ring: 0 follows mask.
func Next(i, mask uint32) uint32 { return (i + 1) & mask }

// Used returns the number of entries between the consumer index cons and the
// producer index prod, 0 to mask.
func Used(prod, cons, mask uint32) uint32 { return (prod - cons) & mask }

// Free returns the number of entries that can still be produced, mask minus
// [Used]: one slot stays empty.
func Free(prod, cons, mask uint32) uint32 { return mask - Used(prod, cons, mask) }

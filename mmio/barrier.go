package mmio

// The contracts are those of rdma-core's util/udma_barrier.h and util/mmio.h,
// with its choice of instructions. Every barrier is a call that the compiler
// does not see through, so it keeps the compiler's order as well.

// ToDevice makes everything this goroutine wrote to ordinary memory visible to a
// device that starts to read it because of a later register store. Place it
// between the last write to a queue or doorbell record and the [Store32] or
// [Store64] that rings the doorbell. It does not order earlier stores to
// write-combining pages: that is [FlushWC].
//
// amd64: nothing but compiler order, since stores become visible in program
// order. arm64: DMB OSHST. Elsewhere: a full fence.
func ToDevice() { toDevice() }

// FromDevice keeps later reads of memory that a device writes from being done
// before an earlier one. Place it between the read that says that data is there
// (owner bit of a completion entry) and the reads of that data.
//
// amd64: LFENCE, as rdma-core has it. arm64: DMB OSHLD. Elsewhere: a full fence.
func FromDevice() { fromDevice() }

// OrderReads is the part of [FromDevice] that a completion queue in ordinary memory needs:
// what is read after it is at least as new as what an earlier [LoadAcquire32] saw. Place it
// between the load that says that the device has written an entry and the reads of the
// entry, and of what the entry stands for.
//
// amd64: nothing. There loads of ordinary memory (write-back) are done in program order, and
// DMA takes part in the caches' coherence like another CPU; the load before keeps the
// compiler's order. LFENCE would add order only for non-temporal loads and for memory of
// other types. The kernel's dma_rmb rests on the same. arm64: DMB OSHLD. Elsewhere: a full
// fence.
func OrderReads() { orderReads() }

// OrderWrites keeps writes to ordinary memory in order for a device: one that
// sees a write made after the barrier also sees every write made before it. It
// does not promise that either is visible yet. Place it between a work request
// and the doorbell record or valid bit that hands it over.
//
// amd64: nothing but compiler order. arm64: DMB OSHST. Elsewhere: a full fence.
func OrderWrites() { orderWrites() }

// FlushWC sends every earlier store out of the CPU's write-combining buffers and
// keeps later stores behind them. Place it after a doorbell or a [Copy64] into
// a write-combining page that has to leave now, and before a lock is given up
// under which such a page was written.
//
// amd64: SFENCE. arm64: DSB ST. Elsewhere: a full fence.
func FlushWC() { flushWC() }

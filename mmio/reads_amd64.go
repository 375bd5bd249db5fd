package mmio

// The order of ordinary memory is the CPU's own here, see OrderReads; the stores that follow
// handOver are locked.

func orderReads() {}

func handOver() {}

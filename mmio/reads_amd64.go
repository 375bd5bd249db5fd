package mmio

// The order of ordinary memory is the CPU's own here, see OrderReads: loads are done in order,
// stores become visible in order, and no store before an earlier load.

func orderReads() {}

func handOver() {}

//go:build !race

package mmio

// publish32 is an ordinary assignment. The CPU makes stores visible in order, and none before
// an earlier load is done. The compiler keeps stores in the order of the program, and loads
// before the stores that come after them: each store makes a new state of memory out of the
// one before. What it does to neighbouring stores is to merge or to drop them, which delays
// none of those that came before. sync/atomic's store is a locked instruction instead, which
// also waits until all of that is visible; and a call, even of one instruction, costs more
// than everything else here.
func publish32(p *uint32, v uint32) { *p = v }

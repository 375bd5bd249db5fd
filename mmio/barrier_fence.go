//go:build riscv64 || ppc64 || ppc64le || s390x || loong64

package mmio

// fence orders all earlier memory and device accesses before all later ones. The
// atomic operations of sync/atomic would not do: on riscv64 they leave device
// accesses unordered.
//
//go:noescape
func fence()

func toDevice()    { fence() }
func fromDevice()  { fence() }
func orderWrites() { fence() }
func flushWC()     { fence() }

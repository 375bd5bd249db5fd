//go:build !amd64

package mmio

func orderReads() { fromDevice() }

// handOver keeps all accesses before those that follow, as a device sees them.
func handOver() {
	fromDevice()
	toDevice()
}

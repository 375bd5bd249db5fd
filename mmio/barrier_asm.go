//go:build amd64 || arm64

package mmio

//go:noescape
func toDevice()

//go:noescape
func fromDevice()

//go:noescape
func orderWrites()

//go:noescape
func flushWC()

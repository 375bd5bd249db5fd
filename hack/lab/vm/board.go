//go:build linux

package vm

// board is the machine that QEMU plays for an architecture.
type board struct {
	program string
	board   []string
	cpu     string
	console string   // what the kernel calls the device that ends in the chardev "console"
	devices []string // that device, and one to end QEMU with a status, if there is one
	bus     string   // of virtio devices, as QEMU's names of them end
}

var boards = map[string]board{
	// q35 because -M pc was seen to panic now and then.
	"amd64": {"qemu-system-x86_64", []string{"-M", "q35"}, "max", "ttyS0",
		[]string{"-serial", "chardev:console", "-device", "isa-debug-exit,iobase=0x501,iosize=1"}, "pci"},
	// Signing pointers takes long to emulate.
	"arm64": {"qemu-system-aarch64", []string{"-M", "virt"}, "max,pauth=off", "ttyAMA0",
		[]string{"-serial", "chardev:console"}, "pci"},
	// The firmware is not found from where an unpacked QEMU is.
	"s390x": {"qemu-system-s390x", []string{"-M", "s390-ccw-virtio", "-L", "/usr/share/qemu"}, "max", "ttyS0",
		[]string{"-device", "sclpconsole,chardev=console"}, "ccw"},
}

// Program is the QEMU for an architecture.
func Program(arch string) string { return boards[arch].program }

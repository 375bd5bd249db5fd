//go:build linux

package vm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// KVMWorks tells whether KVM is worth using: in a nested machine /dev/kvm can be
// there and a guest die at once, or hardly move. The answer is kept in dir until
// the host's next boot.
func KVMWorks(ctx context.Context, dir string) bool {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	f.Close()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return false
	}
	memo := filepath.Join(dir, "kvm")
	if b, err := os.ReadFile(memo); err == nil {
		if answer, ok := strings.CutPrefix(string(b), string(boot)); ok {
			return answer == "works"
		}
	}
	answer := "fails"
	if probeKVM(ctx) {
		answer = "works"
	}
	if ctx.Err() == nil {
		_ = os.WriteFile(memo, []byte(string(boot)+answer), 0o644) // else it is asked again
	}
	return answer == "works"
}

// probeKVM runs a program of a few instructions.
func probeKVM(ctx context.Context) bool {
	dir, err := os.MkdirTemp("", "pureverbs-kvm-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "probe")
	if err := os.WriteFile(program, probe(), 0o644); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err = exec.CommandContext(ctx, Program("amd64"), "-M", "q35", "-accel", "kvm", "-cpu", "host", "-m", "64M", "-nodefaults",
		"-display", "none", "-monitor", "none", "-no-reboot", "-kernel", program,
		"-device", "isa-debug-exit,iobase=0x501,iosize=1").Run()
	var e *exec.ExitError
	return errors.As(err, &e) && e.ExitCode() == probeCode<<1|1
}

const probeCode = 0x2a

// probe is a multiboot program that writes probeCode to the exit port.
func probe() []byte {
	const (
		load     = 0x100000
		magic    = 0x1badb002
		flags    = 1 << 16 // the addresses follow
		checksum = 1<<32 - magic - flags
	)
	code := []byte{
		0xb0, probeCode, // mov $probeCode, %al
		0x66, 0xba, 0x01, 0x05, // mov $0x501, %dx
		0xee, // out %al, (%dx)
		0xf4, // hlt
	}
	var b bytes.Buffer
	header := [8]uint32{magic, flags, checksum, load, load, 0, 0, load + 32}
	_ = binary.Write(&b, binary.LittleEndian, header) // to memory
	b.Write(code)
	return b.Bytes()
}

package testutil

import (
	"fmt"
	"os"
	"strings"
)

// Kernel is a version of Linux, as far as features go.
type Kernel struct{ Major, Minor int }

// ParseKernel reads a version: "6.1", or a release such as "6.1.0-57-amd64".
func ParseKernel(s string) (Kernel, error) {
	var k Kernel
	if _, err := fmt.Sscanf(s, "%d.%d", &k.Major, &k.Minor); err != nil {
		return k, fmt.Errorf("kernel version %q: %w", s, err)
	}
	return k, nil
}

// MustKernel is ParseKernel of a constant.
func MustKernel(s string) Kernel {
	k, err := ParseKernel(s)
	if err != nil {
		panic(err)
	}
	return k
}

// RunningKernel is the version of the kernel that runs, zero where that cannot be told.
func RunningKernel() Kernel {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return Kernel{}
	}
	k, err := ParseKernel(strings.TrimSpace(string(b)))
	if err != nil {
		return Kernel{}
	}
	return k
}

// AtLeast tells whether k is as new as v.
func (k Kernel) AtLeast(v Kernel) bool {
	return k.Major > v.Major || k.Major == v.Major && k.Minor >= v.Minor
}

func (k Kernel) String() string { return fmt.Sprintf("%d.%d", k.Major, k.Minor) }

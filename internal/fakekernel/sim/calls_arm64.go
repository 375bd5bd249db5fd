//go:build linux

package sim

import "golang.org/x/sys/unix"

// Numbers that not every machine has: negative ones are none of any.
const (
	auditArch = unix.AUDIT_ARCH_AARCH64

	sysOpen    = -1
	sysStat    = -2
	sysLstat   = -3
	sysAccess  = -4
	sysFstatat = unix.SYS_FSTATAT
)

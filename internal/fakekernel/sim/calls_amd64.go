//go:build linux

package sim

import "golang.org/x/sys/unix"

// Numbers that not every machine has.
const (
	auditArch = unix.AUDIT_ARCH_X86_64

	sysOpen    = unix.SYS_OPEN
	sysStat    = unix.SYS_STAT
	sysLstat   = unix.SYS_LSTAT
	sysAccess  = unix.SYS_ACCESS
	sysFstatat = unix.SYS_NEWFSTATAT
)

//go:build linux && (amd64 || arm64)

package sim

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// Descriptors of device files get numbers from this range, so that the filter lets all
// other writes pass. They are below 1024, the usual limit of C programs.
const (
	firstFD = 800
	endFD   = 1000
)

const netlinkRDMA = 20 // NETLINK_RDMA of linux/netlink.h

// Offsets in struct seccomp_data; the lower half of an argument comes first.
const (
	dataNr   = 0
	dataArch = 4
	dataArgs = 16
)

// code is a program of the filter in the making. It is a list of rules: each looks at one
// system call and decides, or goes on to the next.
type code []unix.SockFilter

func (c *code) add(op uint16, k uint32, jt, jf uint8) {
	*c = append(*c, unix.SockFilter{Code: op, K: k, Jt: jt, Jf: jf})
}

const (
	load      = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	equal     = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	atLeast   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	anyBit    = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	giveBack  = unix.BPF_RET | unix.BPF_K
	allow     = unix.SECCOMP_RET_ALLOW
	tell      = unix.SECCOMP_RET_USER_NOTIF
	notThere  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)
	noMapping = 0xffff_ffff // the descriptor of an anonymous mapping
)

// test is a condition on the lower half of an argument.
type test struct {
	arg  int
	op   uint16
	k    uint32
	want bool
}

// rule decides about one system call, where all tests hold.
func (c *code) rule(nr int, what uint32, tests ...test) {
	if nr < 0 {
		return
	}
	// A test that fails jumps behind the rule; there the number is loaded again.
	end := len(tests)*2 + 1
	c.add(load, dataNr, 0, 0)
	c.add(equal, uint32(nr), 0, uint8(end))
	for i, t := range tests {
		rest := uint8(end - 2*(i+1))
		c.add(load, dataArgs+8*uint32(t.arg), 0, 0)
		if t.want {
			c.add(t.op, t.k, 0, rest)
		} else {
			c.add(t.op, t.k, rest, 0)
		}
	}
	c.add(giveBack, what, 0, 0)
}

// filter is the program: which system calls are told to the supervisor.
func filter() []unix.SockFilter {
	var c code
	c.add(load, dataArch, 0, 0)
	c.add(equal, auditArch, 1, 0)
	c.add(giveBack, allow, 0, 0)
	c.rule(unix.SYS_IOCTL, tell, test{1, equal, abi.RDMA_VERBS_IOCTL, true})
	for _, nr := range []int{unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_DUP} {
		c.rule(nr, tell, test{0, atLeast, firstFD, true}, test{0, atLeast, endFD, false})
	}
	c.rule(unix.SYS_FCNTL, tell, test{0, atLeast, firstFD, true}, test{0, atLeast, endFD, false},
		test{1, equal, unix.F_DUPFD_CLOEXEC, true})
	c.rule(unix.SYS_FCNTL, tell, test{0, atLeast, firstFD, true}, test{0, atLeast, endFD, false},
		test{1, equal, unix.F_DUPFD, true})
	c.rule(unix.SYS_MMAP, tell, test{3, anyBit, unix.MAP_SHARED, true}, test{4, equal, noMapping, false})
	c.rule(unix.SYS_SOCKET, notThere, test{0, equal, unix.AF_NETLINK, true}, test{2, equal, netlinkRDMA, true})
	for _, nr := range []int{unix.SYS_OPENAT, sysOpen, unix.SYS_FSTAT, sysFstatat, unix.SYS_STATX, sysStat, sysLstat,
		unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, sysAccess} {
		c.rule(nr, tell)
	}
	c.add(giveBack, allow, 0, 0)
	return c
}

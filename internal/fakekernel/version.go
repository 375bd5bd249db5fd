//go:build linux

package fakekernel

import (
	"strconv"
	"strings"

	"github.com/pureverbs/rdma/abi"
)

// version is a kernel's version, major<<8 | minor.
type version uint16

// v512 and so on are versions from which something is there.
const (
	v512 version = 5<<8 | 12
	v514 version = 5<<8 | 14
	v517 version = 5<<8 | 17
	v601 version = 6<<8 | 1
	v603 version = 6<<8 | 3
	v604 version = 6<<8 | 4
	v611 version = 6<<8 | 11
	v612 version = 6<<8 | 12
	v615 version = 6<<8 | 15
	v700 version = 7 << 8
	v702 version = 7<<8 | 2
)

// parseVersion reads Options.Kernel. A test that asks for no version at all is broken, so
// it panics.
func parseVersion(s string) version {
	major, minor, _ := strings.Cut(s, ".")
	a, errA := strconv.ParseUint(major, 10, 8)
	b, errB := strconv.ParseUint(minor, 10, 8)
	if errA != nil || errB != nil {
		panic("fakekernel: Options.Kernel is " + strconv.Quote(s) + ", want a version as 6.1")
	}
	return version(a<<8 | b)
}

// lastCM is the number of the last command of rdma_cm. Those after JOIN_MCAST came between
// the long-term versions.
func (v version) lastCM() uint32 {
	if v >= v700 {
		return abi.RDMA_USER_CM_CMD_WRITE_CM_EVENT
	}
	return abi.RDMA_USER_CM_CMD_JOIN_MCAST
}

// knows tells whether the core of the kernel has a method, whatever the driver.
func (v version) knows(object, method uint16) bool {
	switch [2]uint16{object, method} {
	case [2]uint16{abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_REG_DMABUF_MR}:
		return v >= v512
	case [2]uint16{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT_SPEED}:
		return v >= v702
	}
	return true
}

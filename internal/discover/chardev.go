package discover

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
)

// Dev is a device number in the encoding that the kernel uses in netlink
// (huge_encode_dev) and in stat's st_rdev.
type Dev uint64

// MakeDev builds a device number; minor has 20 bits and major 12.
func MakeDev(major, minor uint32) Dev {
	return Dev(minor&0xff | major&0xfff<<8 | minor&0xfff00<<12)
}

// Major returns the number of the driver.
func (d Dev) Major() uint32 { return uint32(d>>8) & 0xfff }

// Minor returns the number of the device within its driver.
func (d Dev) Minor() uint32 { return uint32(d)&0xff | uint32(d>>12)&0xfff00 }

// String is the form of sysfs and of /dev/char: "231:192".
func (d Dev) String() string { return fmt.Sprintf("%d:%d", d.Major(), d.Minor()) }

// parseDev reads the form of sysfs.
func parseDev(text string) (Dev, error) {
	majorText, minorText, _ := strings.Cut(text, ":")
	major, err := strconv.ParseUint(majorText, 10, 12)
	if err != nil {
		return 0, fmt.Errorf("parse device number %q: %w", text, err)
	}
	minor, err := strconv.ParseUint(minorText, 10, 20)
	if err != nil {
		return 0, fmt.Errorf("parse device number %q: %w", text, err)
	}
	return MakeDev(uint32(major), uint32(minor)), nil
}

// nodeDir is where the kernel (devtmpfs) and udev put the nodes.
const nodeDir = "/dev/infiniband"

// findNode sets Node, and Reason if there is no usable node. It looks where the
// kernel puts the node, and then at the link that udev makes for every
// character device, which survives a rename of the node. It neither opens the
// node nor waits for one to appear. what is for the text: "device rxe1".
func (s *System) findNode(cd *CharDev, what string) {
	cd.Node = path.Join(nodeDir, cd.SysName)
	rdev, err := s.Opener.Stat(cd.Node)
	if err == nil && Dev(rdev) == cd.Dev {
		return
	}
	link := path.Join("/dev/char", cd.Dev.String())
	if again, errLink := s.Opener.Stat(link); errLink == nil && Dev(again) == cd.Dev {
		cd.Node = link
		return
	}
	cd.Reason = nodeError(cd, what, Dev(rdev), err)
}

// nodeError explains what Stat found at the node.
func nodeError(cd *CharDev, what string, found Dev, err error) error {
	e := &Error{Op: "use", Object: what, Node: cd.Node, Dev: cd.Dev, Err: err}
	switch {
	case err == nil || errors.Is(err, fs.ErrInvalid):
		e.Kind = ErrWrongNode
		e.Detail = fmt.Sprintf("%s is device %v, the kernel says %v", cd.Node, found, cd.Dev)
		if err != nil {
			e.Detail = cd.Node + " is no character device"
		}
		e.Next = fmt.Sprintf("make the node again (rm %[1]s; mknod -m 666 %[1]s c %[2]d %[3]d), or pass the right one to the container",
			cd.Node, cd.Dev.Major(), cd.Dev.Minor())
	case errors.Is(err, fs.ErrNotExist):
		e.Kind = ErrNoNode
		e.Detail = fmt.Sprintf("the kernel has %s but %s is not here", what, cd.Node)
		e.Next = fmt.Sprintf("in a container pass it in (--device %s), on a host see that devtmpfs is mounted on /dev", cd.Node)
	case errors.Is(err, syscall.EPERM):
		e.Kind = ErrNoPermission
		e.Detail = cd.Node + " is barred by the container's list of devices (cgroup)"
		e.Next = fmt.Sprintf("start the container with --device %s, a bind mount alone does not do", cd.Node)
	case errors.Is(err, fs.ErrPermission):
		e.Kind = ErrNoPermission
		e.Detail = cd.Node + " may not be read and written by this user"
		e.Next = fmt.Sprintf("as root: chmod 666 %s, or join the group that it belongs to", cd.Node)
	default:
		e.Detail = "cannot look at " + cd.Node
	}
	return e
}

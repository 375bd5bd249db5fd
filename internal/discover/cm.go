package discover

import (
	"errors"
	"io/fs"
	"syscall"
)

// CM returns the connection manager's character device (rdma_cm). Its Reason says
// why the node cannot be opened, if so. The error is ErrNoModule if the kernel
// has no connection manager for programs, with the module to load; having no
// RDMA device is no error here.
//
// The kernel may load rdma_ucm as a consequence. No privilege is needed. Linux
// 5.1 for netlink, else sysfs. Source: rdma_netlink.h and rdma-core's
// librdmacm/cma.c.
func (s *System) CM() (CharDev, error) {
	cd, err := s.netlinkCM()
	if err != nil && refused(err) {
		cd, err = s.sysfsCM(err)
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return CharDev{}, e
	}
	if err != nil {
		return CharDev{}, &Error{Op: "find rdma_cm", Err: err}
	}
	s.findNode(&cd, "rdma_cm")
	return cd, nil
}

func (s *System) netlinkCM() (CharDev, error) {
	t, err := s.Netlink()
	if err != nil {
		return CharDev{}, err
	}
	defer t.Close()
	cd, _, err := getCharDev(t, "rdma_cm", nil)
	return cd, err
}

// sysfsCM reads the device without netlink; cause is what netlink said. If it
// said EOPNOTSUPP, no module serves rdma_cm.
func (s *System) sysfsCM(cause error) (CharDev, error) {
	dev, err := readValue(s.path("sys/class/misc/rdma_cm/dev"))
	if errors.Is(err, fs.ErrNotExist) {
		if !errors.Is(cause, syscall.EOPNOTSUPP) && !s.exists("sys/class/infiniband") {
			return CharDev{}, noRDMA("find rdma_cm", cause)
		}
		return CharDev{}, &Error{
			Op: "find rdma_cm", Kind: ErrNoModule, Node: nodeDir + "/rdma_cm", Err: cause,
			Detail: "the kernel's connection manager for programs is not there: module rdma_ucm is not loaded",
			Next:   "as root: modprobe rdma_ucm",
		}
	}
	if err != nil {
		return CharDev{}, err
	}
	cd := CharDev{SysName: "rdma_cm"}
	if cd.Dev, err = parseDev(dev); err != nil {
		return CharDev{}, err
	}
	version, err := readUint(s.path("sys/class/misc/rdma_cm/abi_version"), 10, 32)
	if err != nil {
		return CharDev{}, err
	}
	cd.ABI = uint32(version)
	return cd, nil
}

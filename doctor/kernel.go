package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/uapi"
)

// modules are those that matter to all devices, each after those that it needs.
var modules = [...]string{"ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm"}

// checkKernel tells what runs here. It judges nothing: what is built in does not show, so
// only what is asked for later tells what is missing.
func (e *examination) checkKernel() {
	f := &e.facts
	detail := "Linux"
	if f.release != "" {
		detail += " " + f.release
	}
	if f.container != onHost {
		detail += ", in a " + string(f.container)
	}
	if f.userNS {
		detail += ", in a user namespace"
	}
	if f.seccomp {
		detail += ", with a seccomp filter"
	}
	e.check(true, "kernel", "", detail)
	var there []string
	for _, m := range modules {
		if f.modules[m] {
			there = append(there, m)
		}
	}
	if len(there) > 0 {
		e.check(true, "modules", "", strings.Join(there, ", ")+" loaded")
	}
}

// checkNetlink asks for a socket and for the mode of the system.
func (e *examination) checkNetlink() error {
	t, err := e.System.Netlink()
	if err == nil {
		t.Close()
		if mode, err := e.System.Mode(); err == nil {
			e.exclusive = mode.Exclusive
			e.check(true, "netlink", "", "RDMA netlink answers; network namespaces: "+modeName(mode.Exclusive))
			return nil
		}
		e.check(true, "netlink", "", "RDMA netlink answers")
		return nil
	}
	if errors.Is(err, uapi.ErrNotLinux) {
		return err
	}
	if mode, err := e.System.Mode(); err == nil {
		e.exclusive = mode.Exclusive
	}
	if e.isRefusal(err) {
		e.check(false, "netlink", "", "RDMA netlink is refused: "+reason(err))
		e.find(e.netlinkRefused(err))
	}
	return nil
}

func modeName(exclusive bool) string {
	if exclusive {
		return "exclusive (a device belongs to one)"
	}
	return "shared (all see all devices)"
}

// isRefusal tells whether netlink is refused in spite of a kernel that has RDMA. A kernel
// without says EPROTONOSUPPORT; a filter may say what it likes, that as well.
func (e *examination) isRefusal(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || e.kernelHasRDMA()
}

func (e *examination) kernelHasRDMA() bool {
	return e.facts.modules["ib_core"] || e.exists("sys/class/infiniband")
}

// netlinkRefused is a warning as long as /sys can stand in.
func (e *examination) netlinkRefused(err error) Finding {
	f := Finding{Severity: Error, Code: NetlinkRefused, Object: "netlink", Why: NetlinkRefused.why()}
	f.What = "sockets of RDMA netlink (NETLINK_RDMA) are refused: " + reason(err)
	if e.facts.seccomp {
		f.What += "; a seccomp filter is at work in this process"
	} else {
		f.What += "; there is no seccomp filter, so it is a security module (SELinux, AppArmor) or the sandbox"
	}
	if e.exists("sys/class") {
		f.Severity = Warning // what /sys tells has to do
	} else {
		f.What += "; and /sys is not mounted here"
		f.Fixes = append(f.Fixes, Fix{hereRoot, "mount -t sysfs -o ro sysfs /sys"})
	}
	f.Fixes = append(f.Fixes, e.facts.starting("--security-opt seccomp=unconfined", "securityContext: {seccompProfile: {type: Unconfined}}")...)
	if e.facts.container == onHost {
		f.Fixes = append(f.Fixes, Fix{"in the service's unit", "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK"})
	}
	return f
}

func (e *examination) exists(path string) bool {
	_, err := os.Stat(filepath.Join(e.System.Root, "/", path))
	return err == nil
}

// noModule explains a missing module. Which driver the adapter needs is not known here.
func (e *examination) noModule(name, what string) Finding {
	return Finding{
		Severity: Error, Code: NoModule, Object: "module " + name, What: what, Why: NoModule.why(),
		Fixes: []Fix{{e.facts.asRoot(), "modprobe " + name}},
	}
}

// noRDMA is a kernel without anything of it. rdma_ucm brings all others but the driver.
func (e *examination) noRDMA() Finding {
	f := e.noModule("ib_core", "the kernel has no RDMA: ib_core, ib_uverbs and rdma_ucm are not loaded")
	f.Fixes = []Fix{
		{e.facts.asRoot(), "modprobe rdma_ucm"},
		{e.facts.asRoot() + ", if there is no such module (kernels made for clouds leave it out; on Ubuntu it is in linux-modules-extra)",
			"apt-get install linux-image-$(dpkg --print-architecture)"},
	}
	return f
}

// reason is the cause of an error in as few words as there are.
func reason(err error) string {
	var e *discover.Error
	if errors.As(err, &e) && e.Detail != "" {
		return e.Detail
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

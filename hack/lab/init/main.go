//go:build linux

// Init is the guest's first process. The host says on the kernel's command line
// what to make of the guest (package boot) and then sends jobs over a serial port
// (package wire).
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/hack/lab/boot"
	"github.com/pureverbs/rdma/hack/lab/wire"
)

func main() {
	// The end of the first process is a kernel panic, which QEMU takes for an
	// exit without a status: the host then shows this text.
	err := run()
	fmt.Fprintln(os.Stderr, "lab init:", err)
}

func run() error {
	if err := mountSystem(); err != nil {
		return err
	}
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	plan := boot.Parse(string(cmdline))
	// The port and the shared folders need these.
	if err := loadGroup("boot"); err != nil {
		return err
	}
	port, err := openPort(wire.PortName)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "lab: boot")
	g := wire.Greeting{Release: release(), Devices: plan.Devices()}
	if err := setUp(plan); err != nil {
		g.Err = err.Error()
	}
	c := wire.NewConn(port, port)
	if err := c.SendJSON(wire.Hello, g); err != nil {
		return fmt.Errorf("greet the host: %w", err)
	}
	signal.Ignore(unix.SIGHUP, unix.SIGPIPE)
	return serve(c)
}

// setUp makes the guest as planned.
func setUp(p boot.Plan) error {
	if err := mountShares(p.Shares); err != nil {
		return err
	}
	if err := limits(); err != nil {
		return err
	}
	for _, g := range p.Groups {
		if err := loadGroup(g); err != nil {
			return err
		}
	}
	if err := network(); err != nil {
		return fmt.Errorf("set up the network: %w", err)
	}
	return addLinks(p.Links)
}

// limits are what a machine meant for RDMA would allow.
func limits() error {
	all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	files := unix.Rlimit{Cur: 65536, Max: 65536}
	return errors.Join(
		unix.Setrlimit(unix.RLIMIT_MEMLOCK, &all),
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
		unix.Setrlimit(unix.RLIMIT_NOFILE, &files),
		unix.Sethostname([]byte("lab")))
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// powerOff ends the machine, with a status for QEMU where there is a device for it.
func powerOff(code int) error {
	unix.Sync()
	if runtime.GOARCH != "amd64" {
		return off()
	}
	if f, err := os.OpenFile("/dev/port", os.O_WRONLY, 0); err == nil {
		_, _ = f.WriteAt([]byte{byte(code)}, boot.ExitPort) // does not return
	}
	return off()
}

func off() error {
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	time.Sleep(time.Minute)
	return err
}

// loadGroup loads the modules of a group that are not there yet.
func loadGroup(group string) error {
	list, err := os.ReadFile(boot.GroupFile(group))
	if err != nil {
		return err
	}
	return loadModules(string(list))
}

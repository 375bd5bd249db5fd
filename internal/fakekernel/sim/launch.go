//go:build linux && (amd64 || arm64)

package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/internal/fakekernel"
)

// launchName is the name under which this program is started again, to become the one that it is
// to run.
const launchName = "mlx5sim: launch"

// socketFD is where the other half finds its socket.
const socketFD = 3

// Launched does, in a process that [Run] started, what is to be done before the program runs,
// and then runs it. In all others it does nothing. It is the first thing that main calls.
func Launched() {
	if os.Args[0] != launchName {
		return
	}
	err := launch()
	step := &Refused{Step: "start the program", Err: err}
	errors.As(err, &step)
	// The supervisor says what happened; it may not be there any more.
	_ = unix.Sendmsg(socketFD, []byte(step.Step+"\n"+errnoText(step.Err)), nil, nil, 0)
	os.Exit(statusRefused)
}

func errnoText(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return fmt.Sprintf("%s (%s)", unix.ErrnoName(errno), errno.Error())
	}
	return err.Error()
}

// launch does not return but with an error. All from the filter on runs on one thread: the
// program takes that one over, and the others end.
func launch() error {
	runtime.LockOSThread()
	tree, err := receiveTree()
	if err == nil {
		err = mountTree(tree)
	}
	if err == nil {
		err = dropPrivileges()
	}
	if err != nil {
		return err
	}
	program := filter()
	path, args, env := os.Args[1], os.Args[2:], append(os.Environ(), "RDMA_SIM=1")
	l, err := newListener(program)
	if err != nil {
		return refused("install a seccomp filter with a listener", err)
	}
	if err := unix.Sendmsg(socketFD, []byte{0}, unix.UnixRights(int(l)), nil, 0); err != nil {
		return refused("hand the listener over", err)
	}
	unix.Close(int(l))
	err = syscall.Exec(path, args, env)
	fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
	os.Exit(statusCannotRun)
	return nil
}

// receiveTree gets the files of /sys from the supervisor.
func receiveTree() (tree map[string]string, err error) {
	unix.CloseOnExec(socketFD)
	b := make([]byte, maxTree)
	n, err := unix.Read(socketFD, b)
	if err == nil {
		err = json.Unmarshal(b[:n], &tree)
	}
	return tree, refused("hear from the supervisor", err)
}

// maxTree is the longest text of a tree: what goes into one message.
const maxTree = 128 << 10

// dropPrivileges gives up what was only for the mounts. Without no_new_privs only root may
// have a filter.
func dropPrivileges() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return refused("drop ambient capabilities", err)
	}
	return refused("set no_new_privs", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}

// mountTree replaces /sys/class, in this mount namespace alone.
func mountTree(tree map[string]string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return refused("make mounts private", err)
	}
	net, err := unix.Open("/sys/class/net", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return refused("open /sys/class/net", err)
	}
	defer unix.Close(net)
	if err := unix.Mount("mlx5sim", "/sys/class", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755"); err != nil {
		return refused("mount a tmpfs on /sys/class", err)
	}
	if err := os.Mkdir("/sys/class/net", 0o755); err != nil {
		return refused("make /sys/class/net", err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", net), "/sys/class/net", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return refused("bind /sys/class/net back", err)
	}
	for path, text := range tree {
		if !strings.HasPrefix(path, "sys/class/") {
			continue
		}
		if err := fakekernel.WriteFile("/", path, text); err != nil {
			return refused("write "+path, err)
		}
	}
	return nil
}

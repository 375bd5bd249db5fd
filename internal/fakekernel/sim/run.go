//go:build linux && (amd64 || arm64)

package sim

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/internal/fakekernel"
)

// Statuses of a run that are not the program's, as of env and other launchers.
const (
	statusUsage     = 2   // the command line is wrong
	statusRefused   = 125 // the machine does not let us
	statusCannotRun = 126 // the program could not be started
	statusNotFound  = 127
	statusSignal    = 128 // and the number of the signal that ended it
)

// Options are how to run a program.
type Options struct {
	Kernel fakekernel.Options // NoCM is implied; Root is not used
	// Log, if not nil, gets a line for each system call that is answered here.
	Log io.Writer
}

// grace is how long what the program has started may go on after its end.
const grace = 2 * time.Second

// Run runs a program with the devices, on the descriptors 0 to 2 of this process. It returns
// its exit status, or 128 and the number of the signal that ended it. What the program
// started and left is killed: without the devices it could not go on.
//
// A *Refused error says that this machine does not let us; the status is 125 then. Main has
// to call [Launched].
func Run(o Options, args []string) (status int, err error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return statusNotFound, err
	}
	signals := make(chan os.Signal, 8) // from now on: the program may be up before we wait for it
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2)
	defer func() { signal.Stop(signals); close(signals) }()
	o.Kernel.NoCM, o.Kernel.NoCMNode, o.Kernel.Root = true, true, ""
	runtime.LockOSThread() // the death signal is sent when the thread ends
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return statusRefused, refused("become the reaper of orphans", err)
	}
	socket, cmd, err := startOther(path, args)
	if err != nil {
		return statusRefused, err
	}
	l, err := socket.meet(fakekernel.SysFS(o.Kernel))
	if err != nil {
		cmd.Wait() //nolint:errcheck // it said why
		return statusRefused, err
	}
	k := fakekernel.New(o.Kernel)
	defer k.Close()
	s, err := newSupervisor(k, l, o.Log)
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait() //nolint:errcheck // it was killed
		return statusRefused, err
	}
	defer s.close()
	served := make(chan struct{})
	go func() { defer close(served); s.serve() }()
	status = wait(cmd, signals)
	select {
	case <-served:
	case <-time.After(grace):
		killChildren()
		<-served
	}
	reap()
	s.tell("left: %+v", k.Counts())
	return status, nil
}

// startOther starts this program again, in a mount namespace of its own, and where that is not
// allowed in one that belongs to the user.
func startOther(path string, args []string) (socket, *exec.Cmd, error) {
	ours, theirs, err := newSocket()
	if err != nil {
		return socket{}, nil, err
	}
	defer theirs.Close()
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	cmd, err := startIn(attr, path, args, theirs)
	if errors.Is(err, unix.EPERM) {
		uid, gid := os.Getuid(), os.Getgid()
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
		cmd, err = startIn(attr, path, args, theirs)
	}
	if err != nil {
		ours.Close()
		return socket{}, nil, refused("create namespaces", err)
	}
	return socket{ours}, cmd, nil
}

func startIn(attr *syscall.SysProcAttr, path string, args []string, end *os.File) (*exec.Cmd, error) {
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: append([]string{launchName, path}, args...), SysProcAttr: attr,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, ExtraFiles: []*os.File{end},
	}
	return cmd, cmd.Start()
}

// wait waits for the program, and passes signals on to it.
func wait(cmd *exec.Cmd, signals <-chan os.Signal) int {
	go func() {
		for s := range signals {
			cmd.Process.Signal(s) //nolint:errcheck // it may have ended
		}
	}()
	cmd.Wait() //nolint:errcheck // the status tells
	w := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if w.Signaled() {
		return statusSignal + int(w.Signal())
	}
	return w.ExitStatus()
}

// socket is the connection to the other half.
type socket struct{ *os.File }

func newSocket() (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, refused("make a socket pair", err)
	}
	return os.NewFile(uintptr(pair[0]), "socket"), os.NewFile(uintptr(pair[1]), "socket"), nil
}

// meet tells the other half what it needs, and gets the listener, or why there is none.
func (s socket) meet(tree map[string]string) (listener, error) {
	defer s.Close()
	text, err := json.Marshal(tree)
	if err == nil {
		_, err = s.Write(text)
	}
	if err != nil {
		return -1, refused("tell the other half", err)
	}
	word, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(int(s.Fd()), word, oob, unix.MSG_CMSG_CLOEXEC)
	switch {
	case err != nil:
		return -1, refused("hear from the other half", err)
	case n == 0:
		return -1, refused("hear from the other half", io.ErrUnexpectedEOF)
	case oobn == 0:
		step, why, _ := strings.Cut(string(word[:n]), "\n")
		return -1, refused(step, errors.New(why))
	}
	return parseListener(oob[:oobn])
}

func parseListener(oob []byte) (listener, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return -1, refused("get the listener", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return -1, refused("get the listener", err)
	}
	return listener(fds[0]), nil
}

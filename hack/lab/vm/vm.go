//go:build linux

// Package vm runs a guest under QEMU.
package vm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pureverbs/rdma/hack/lab/wire"
)

// Config says what to boot and how.
type Config struct {
	Arch    string // amd64, arm64 or s390x
	QEMU    string // the program, if it is not in PATH
	Kernel  string
	Initrd  string
	Words   []string // added to the kernel's command line
	SMP     int
	Memory  string // as QEMU takes it: 512M
	ICount  bool   // the guest's clock counts instructions
	KVM     bool
	Shares  []Share
	Console string // file that gets what the kernel says
}

// Share is a folder of the host that the guest can mount by 9p.
type Share struct {
	Tag, Path string
	ReadOnly  bool
}

// words begin every command line. The last two save a second and a half: of
// self-tests of ciphers, and of splitting and checking the kernel's own pages.
var words = []string{"quiet", "panic=-1", "cryptomgr.notests", "rodata=off"}

// args is QEMU's command line. No default devices, because each costs time at boot.
func (c Config) args() []string {
	m := boards[c.Arch]
	a := slices.Concat(m.board, []string{"-nodefaults", "-display", "none", "-monitor", "none", "-no-reboot"})
	switch {
	case c.ICount:
		// One nanosecond an instruction; the clock stops while nothing runs.
		a = append(a, "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-cpu", m.cpu)
	case c.KVM:
		a = append(a, "-accel", "kvm", "-cpu", "host")
	default:
		a = append(a, "-accel", "tcg,thread=multi", "-cpu", m.cpu)
	}
	a = append(a,
		"-smp", strconv.Itoa(c.SMP), "-m", c.Memory,
		"-kernel", c.Kernel, "-initrd", c.Initrd,
		"-append", strings.Join(slices.Concat([]string{"console=" + m.console}, words, c.Words), " "),
		"-chardev", "file,id=console,path="+comma(c.Console))
	a = append(a, m.devices...)
	a = append(a,
		"-device", "virtio-serial-"+m.bus, "-chardev", "stdio,id=lab,signal=off",
		"-device", "virtserialport,chardev=lab,name="+wire.PortName)
	for _, s := range c.Shares {
		v := "local,path=" + comma(s.Path) + ",mount_tag=" + s.Tag + ",security_model=none,multidevs=remap"
		if s.ReadOnly {
			v += ",readonly=on"
		}
		a = append(a, "-virtfs", v)
	}
	return a
}

// comma writes a value for one of QEMU's lists.
func comma(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// VM is a running guest.
type VM struct {
	Conn    *wire.Conn
	console string
	cmd     *exec.Cmd
	stdin   io.Closer
	done    chan struct{}
	err     error
	stderr  strings.Builder
}

// Start boots a guest. It runs until Kill or until it ends by itself, and never
// longer than this process.
func Start(c Config) (*VM, error) {
	program := c.QEMU
	if program == "" {
		program = Program(c.Arch)
	}
	cmd := exec.Command(program, c.args()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true, // the terminal's Ctrl-C is for us to pass on
		Pdeathsig: syscall.SIGKILL,
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// A pipe of our own: Wait must not close it while the last frames are read.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	v := &VM{Conn: wire.NewConn(r, in), console: c.Console, cmd: cmd, stdin: in, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = w, &v.stderr
	err = cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("start qemu: %w", err)
	}
	go func() {
		defer close(v.done)
		v.err = cmd.Wait()
	}()
	return v, nil
}

// Kill ends the guest, if it still runs, and waits for that.
func (v *VM) Kill() {
	_ = v.cmd.Process.Kill() // it may have ended
	<-v.done
}

// Done is closed when the guest has ended.
func (v *VM) Done() <-chan struct{} { return v.done }

// Status is what the guest wrote to its exit port, after Done; ok is false if it
// ended in another way: a panic, a signal, a mistake in QEMU's command line.
func (v *VM) Status() (code int, ok bool) {
	var e *exec.ExitError
	if !errors.As(v.err, &e) || e.ExitCode() < 0 || e.ExitCode()&1 == 0 || v.stderr.Len() > 0 {
		return 0, false
	}
	return e.ExitCode() >> 1, true // isa-debug-exit: (code << 1) | 1
}

// Complaint is what QEMU itself said, after Done.
func (v *VM) Complaint() string { return strings.TrimSpace(v.stderr.String()) }

// ConsoleText is what the guest's kernel and init said so far.
func (v *VM) ConsoleText() string {
	b, err := os.ReadFile(v.console)
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(string(b), "\r", "")
}

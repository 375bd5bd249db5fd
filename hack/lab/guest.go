//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pureverbs/rdma/hack/lab/cpio"
	"github.com/pureverbs/rdma/hack/lab/vm"
	"github.com/pureverbs/rdma/hack/lab/wire"
)

// bootLimit is how long a guest may take to greet. It takes 4 s, or 15 s when it
// counts instructions; the rest is for slow and busy machines.
const bootLimit = 2 * time.Minute

// guest is a running machine that takes jobs.
type guest struct {
	vm       *vm.VM
	greeting wire.Greeting
	frames   chan frame    // closed when the guest is gone
	gone     chan struct{} // closed by close, so that nobody waits to deliver frames
	console  string        // where to keep its console, if anywhere
}

type frame struct {
	kind    wire.Kind
	payload []byte
}

// errDied says that a guest ended without being asked to, errEmulator that it was no
// fault of what ran inside.
var (
	errDied     = errors.New("the guest died")
	errEmulator = errors.New("QEMU ran code that the kernel had replaced")
)

// bootAttempts is how often a machine is booted that dies before it greets.
const bootAttempts = 3

// bootGuest boots a machine.
func bootGuest(ctx context.Context, m machine, o options, root, dir string) (*guest, error) {
	initrd := filepath.Join(dir, "initrd")
	if err := buildInitrd(ctx, root, m, initrd); err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	c := vm.Config{
		Arch: o.arch, QEMU: m.qemu,
		Kernel: m.image.Kernel, Initrd: initrd, Words: append(o.plan().Words(), strings.Fields(o.words)...),
		SMP: o.smp, Memory: o.memory, ICount: o.icount, KVM: !o.icount && o.arch == hostArch && vm.KVMWorks(ctx, cache),
		Shares: []vm.Share{
			{Tag: "host", Path: filepath.Join(dir, "host")},
			{Tag: "src", Path: root, ReadOnly: true},
		},
		Console: filepath.Join(dir, "console"),
	}
	if o.share != "" {
		c.Shares[0].Path = o.share
	}
	say("booting Linux %s", m.image.Release)
	for n := 1; ; n++ {
		g, err := startGuest(ctx, c, o.console)
		if n == bootAttempts || !errors.Is(err, errDied) {
			return g, err
		}
		say("%v; trying once more", err)
	}
}

func startGuest(ctx context.Context, c vm.Config, console string) (*guest, error) {
	v, err := vm.Start(c)
	if err != nil {
		return nil, err
	}
	g := &guest{vm: v, frames: make(chan frame), gone: make(chan struct{}), console: console}
	go g.receive()
	if err := g.greet(ctx); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

func (g *guest) receive() {
	defer close(g.frames)
	for {
		k, p, err := g.vm.Conn.Recv()
		if err != nil {
			return
		}
		select {
		case g.frames <- frame{k, p}:
		case <-g.gone:
			return
		}
	}
}

func (g *guest) greet(ctx context.Context) error {
	select {
	case f, ok := <-g.frames:
		if !ok {
			return g.died()
		}
		if f.kind != wire.Hello {
			return fmt.Errorf("the guest began with a frame %q", f.kind)
		}
		if err := json.Unmarshal(f.payload, &g.greeting); err != nil {
			return err
		}
		if g.greeting.Err != "" {
			g.showConsole()
			return fmt.Errorf("the guest could not be set up: %s", g.greeting.Err)
		}
		return nil
	case <-time.After(bootLimit):
		g.showConsole()
		return fmt.Errorf("the guest did not come up in %v", bootLimit)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// died is called when no frames come any more. It shows what the guest's kernel
// had to say.
func (g *guest) died() error {
	g.vm.Kill()
	g.showConsole()
	if s := g.vm.Complaint(); s != "" {
		return fmt.Errorf("qemu: %s", s)
	}
	if staleCode.MatchString(g.vm.ConsoleText()) {
		return fmt.Errorf("%w: %w", errDied, errEmulator)
	}
	return errDied
}

func (g *guest) showConsole() {
	say("the guest's console:")
	fmt.Fprint(os.Stderr, tail(g.vm.ConsoleText(), 200))
	say("end of the console")
}

// powerOff ends the guest in good order: it writes its files first. Then it tells
// what the guest's kernel complained of.
func (g *guest) powerOff() {
	if g.vm.Conn.Send(wire.PowerOff, nil) == nil {
		select {
		case <-g.vm.Done():
		case <-time.After(10 * time.Second):
		}
	}
	g.close()
	if c := complaints(g.vm.ConsoleText()); c != "" {
		say("the guest's kernel complained:\n%s", c)
	}
}

// close ends the guest and keeps its console if asked to.
func (g *guest) close() {
	close(g.gone)
	g.vm.Kill()
	if g.console == "" {
		return
	}
	if err := os.WriteFile(g.console, []byte(g.vm.ConsoleText()), 0o644); err != nil {
		say("keep the console: %v", err)
	}
}

// buildInitrd joins the guest's programs, its modules and its first process.
func buildInitrd(ctx context.Context, root string, m machine, out string) error {
	bin := out + ".init"
	env := []string{"CGO_ENABLED=0", "GOARCH=" + m.image.Suite.Arch}
	err := goTool(ctx, filepath.Join(root, "hack"), env, "build", "-buildvcs=false", "-ldflags=-s -w", "-o", bin, "./lab/init")
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range []string{m.rootfs, m.image.Modules} {
		if err := appendFile(f, p); err != nil {
			return err
		}
	}
	program, err := os.Open(bin)
	if err != nil {
		return err
	}
	defer program.Close()
	fi, err := program.Stat()
	if err != nil {
		return err
	}
	w := cpio.NewWriter(f)
	if m.siw != "" {
		if err := m.image.AddModule(w, "siw", m.siw); err != nil {
			return err
		}
	}
	return errors.Join(w.File("init", 0o755, fi.Size(), program), w.Close(), f.Close())
}

func appendFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// goTool runs the go command; what it says goes to the user.
func goTool(ctx context.Context, dir string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w", args[0], err)
	}
	return nil
}

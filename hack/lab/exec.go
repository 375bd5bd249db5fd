//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/term"

	"github.com/pureverbs/rdma/hack/lab/wire"
)

// execCommand runs one command inside. A single argument is a line for the
// shell; several are a program and its arguments.
func execCommand(ctx context.Context, sig *interrupts, o options) (int, error) {
	argv := o.args
	if len(argv) == 1 {
		argv = []string{"sh", "-c", argv[0]}
	}
	job := wire.Job{Argv: argv, Dir: "/host"}
	if o.tty && isTerminal(os.Stdin) && isTerminal(os.Stdout) {
		job.TTY = true
	}
	return single(ctx, sig, o, job)
}

// shellCommand is an interactive shell.
func shellCommand(ctx context.Context, sig *interrupts, o options) (int, error) {
	if !isTerminal(os.Stdin) {
		return exitTrouble, errors.New("shell needs a terminal; for a script use: lab exec -- sh /host/script")
	}
	// busybox's shell has line editing, the other is small.
	return single(ctx, sig, o, wire.Job{Argv: []string{"busybox", "ash", "-l"}, Dir: "/root", TTY: true})
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// single boots a guest for one job that the user takes part in.
func single(ctx context.Context, sig *interrupts, o options, job wire.Job) (int, error) {
	root, err := findRoot()
	if err != nil {
		return exitTrouble, err
	}
	m, err := prepare(ctx, o.cells()[0], false)
	if err != nil {
		return exitTrouble, err
	}
	o.share, o.console, o.coverProfile = under(root, o.share), under(root, o.console), under(root, o.coverProfile)
	dir, err := os.MkdirTemp("", "pureverbs-lab-")
	if err != nil {
		return exitTrouble, err
	}
	defer os.RemoveAll(dir)
	if err := os.Mkdir(filepath.Join(dir, "host"), 0o755); err != nil {
		return exitTrouble, err
	}
	g, err := bootGuest(ctx, m, o, root, dir)
	if err != nil {
		return exitTrouble, err
	}
	defer g.powerOff()
	job.Env = o.environment(m.image.Suite)
	jio := jobIO{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	if job.TTY {
		job.Env = append(job.Env, "TERM="+os.Getenv("TERM"))
		restore, err := g.rawTerminal(&job)
		if err != nil {
			return exitTrouble, err
		}
		defer restore()
	}
	s, err := g.run(ctx, sig, job, jio, o.timeout)
	switch {
	case errors.Is(err, errTimeout):
		return exitTimeout, err
	case err != nil:
		return exitTrouble, err
	}
	return s.Code, nil
}

// forwardInput sends what comes in to the job, a piece at a time: the next one
// when the job has taken the last. It ends with the process.
func (g *guest) forwardInput(r io.Reader, acked <-chan struct{}) {
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if g.vm.Conn.Send(wire.Stdin, buf[:n]) != nil {
				return
			}
			select {
			case <-acked:
			case <-g.gone:
				return
			}
		}
		if err != nil {
			_ = g.vm.Conn.Send(wire.StdinEOF, nil) // if the guest is gone, that is known
			return
		}
	}
}

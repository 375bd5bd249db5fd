//go:build linux

package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/pureverbs/rdma/hack/lab/wire"
)

// rawTerminal hands our terminal over to a job that gets one in the guest: each
// key goes there as it is, Ctrl-C too. The function returned takes it back.
func (g *guest) rawTerminal(job *wire.Job) (restore func(), err error) {
	fd := int(os.Stdin.Fd())
	old, err := term.MakeRaw(fd)
	if err != nil {
		return nil, fmt.Errorf("set the terminal: %w", err)
	}
	job.Size = terminalSize()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	go func() {
		for range resized {
			_ = g.vm.Conn.SendJSON(wire.Resize, terminalSize()) // a nicety
		}
	}()
	return func() {
		signal.Stop(resized)
		close(resized)
		_ = term.Restore(fd, old) // nothing else can be done
	}, nil
}

func terminalSize() wire.Size {
	w, h, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return wire.Size{}
	}
	return wire.Size{Rows: uint16(h), Cols: uint16(w)}
}

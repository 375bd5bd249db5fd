//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/hack/lab/wire"
)

// stdio is how a job speaks: two pipes and one for its input, or a terminal.
type stdio struct {
	in       *os.File               // the job's input is written here
	out      map[wire.Kind]*os.File // its output is read here
	children []*os.File             // what the job gets as 0, 1, 2
	tty      bool
	copied   *sync.WaitGroup
}

func openStdio(tty bool, size wire.Size) (stdio, error) {
	s := stdio{tty: tty, copied: new(sync.WaitGroup), out: map[wire.Kind]*os.File{}}
	if tty {
		return s, s.openTerminal(size)
	}
	r0, w0, err0 := os.Pipe()
	r1, w1, err1 := os.Pipe()
	r2, w2, err2 := os.Pipe()
	s.in, s.children = w0, []*os.File{r0, w1, w2}
	s.out[wire.Stdout], s.out[wire.Stderr] = r1, r2
	return s, errors.Join(err0, err1, err2)
}

func (s *stdio) openTerminal(size wire.Size) error {
	m, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	n, err := control(m, func(fd int) (int, error) {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return 0, err
		}
		return unix.IoctlGetInt(fd, unix.TIOCGPTN)
	})
	if err != nil {
		return fmt.Errorf("open terminal: %w", err)
	}
	sl, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	s.in, s.children = m, []*os.File{sl, sl, sl}
	s.out[wire.Stdout] = m
	s.resize(size)
	return nil
}

// control runs f on a descriptor without taking it from the runtime's poller.
func control(f *os.File, do func(fd int) (int, error)) (n int, err error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := rc.Control(func(fd uintptr) { n, err = do(int(fd)) })
	return n, errors.Join(cerr, err)
}

func (s *stdio) resize(size wire.Size) {
	if !s.tty || size.Rows == 0 {
		return
	}
	_, _ = control(s.in, func(fd int) (int, error) { // a size is a nicety
		return 0, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
}

func (s *stdio) child() []uintptr {
	var fds []uintptr
	for _, f := range s.children {
		fds = append(fds, f.Fd())
	}
	return fds
}

func (s *stdio) closeChild() {
	for _, f := range s.children {
		_ = f.Close() // a terminal is there three times
	}
}

func (s *stdio) close() {
	_ = s.in.Close()
	for _, f := range s.out {
		_ = f.Close()
	}
}

// copyOut sends the job's output as it comes.
func (s *stdio) copyOut(c *wire.Conn) {
	for k, f := range s.out {
		s.copied.Go(func() {
			// A terminal ends with EIO, a pipe with EOF.
			_, _ = io.CopyBuffer(struct{ io.Writer }{c.Output(k)}, struct{ io.Reader }{f}, make([]byte, 32<<10))
		})
	}
}

// drain waits until all output is sent. A process that does not die keeps its
// pipe open, hence the limit.
func (s *stdio) drain(limit time.Duration) {
	done := make(chan struct{})
	go func() { s.copied.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
	}
	s.close()
}

// endInput tells the job that no more comes.
func (s *stdio) endInput() {
	if s.tty {
		_, _ = s.in.Write([]byte{4}) // Ctrl-D
		return
	}
	_ = s.in.Close()
}

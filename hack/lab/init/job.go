//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/hack/lab/wire"
)

// Exit statuses of a job that never ran, as shells give them.
const (
	cannotRun = 126
	notFound  = 127
)

// job is a command that runs for the host.
type job struct {
	c     *wire.Conn
	pid   int
	stdio stdio
	input chan []byte // for the command's input; nil ends it
	ended chan struct{}
}

// startJob runs a command. Its exit status goes to the host and to ended.
func startJob(c *wire.Conn, r *reaper, w wire.Job, ended chan<- int) *job {
	j := &job{c: c, input: make(chan []byte, 4), ended: make(chan struct{})}
	began := time.Now()
	status, err := j.start(r, w)
	go func() {
		s := wire.Status{}
		if err != nil {
			s.Code, s.Note = cannotRun, err.Error()
			if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
				s.Code = notFound
			}
		} else {
			s = j.finish(r, <-status)
		}
		s.Seconds = time.Since(began).Seconds()
		close(j.ended)
		ended <- s.Code
		if err := c.SendJSON(wire.Exit, s); err != nil {
			fmt.Fprintln(os.Stderr, "lab init: report the end of a job:", err)
		}
	}()
	return j
}

func (j *job) start(r *reaper, w wire.Job) (<-chan unix.WaitStatus, error) {
	if len(w.Argv) == 0 {
		return nil, errors.New("no command")
	}
	env := append(environment(), w.Env...)
	path, err := lookPath(w.Argv[0], env)
	if err != nil {
		return nil, err
	}
	attr := &syscall.ProcAttr{Dir: w.Dir, Env: env, Sys: &syscall.SysProcAttr{Setsid: true}}
	if w.TTY {
		attr.Sys.Setctty = true // descriptor 0
	}
	if j.stdio, err = openStdio(w.TTY, w.Size); err != nil {
		return nil, err
	}
	attr.Files = j.stdio.child()
	pid, status, err := r.start(path, w.Argv, attr)
	j.stdio.closeChild()
	if err != nil {
		j.stdio.close()
		return nil, fmt.Errorf("run %s: %w", w.Argv[0], err)
	}
	j.pid = pid
	j.stdio.copyOut(j.c)
	go j.copyIn()
	return status, nil
}

// finish waits for what the command left behind, and clears it away: the next job
// finds a guest without processes of this one.
func (j *job) finish(r *reaper, ws unix.WaitStatus) wire.Status {
	s := wire.Status{Code: ws.ExitStatus()}
	if ws.Signaled() {
		s.Code = 128 + int(ws.Signal())
		// A signal for the whole group: the others may have a last word to say.
		select {
		case <-r.idle:
		case <-time.After(time.Second):
		}
	}
	if !r.killAll(10 * time.Second) {
		s.Note = "processes are left that do not die"
		explainStuck()
	}
	j.stdio.drain(2 * time.Second)
	unix.Sync() // files on the host's folder
	return s
}

// frame takes what the host sends for a running job. It must not block: the next
// frame may be the signal that ends the job.
func (j *job) frame(k wire.Kind, p []byte) {
	if j.pid == 0 {
		return
	}
	switch k {
	case wire.Stdin, wire.StdinEOF:
		if k == wire.StdinEOF {
			p = nil
		}
		select {
		case j.input <- p: // room enough: the host waits for an answer to each
		default:
		}
	case wire.Signal:
		if len(p) == 1 {
			signalGroup(j.pid, unix.Signal(p[0]))
		}
	case wire.Resize:
		var size wire.Size
		if json.Unmarshal(p, &size) == nil {
			j.stdio.resize(size)
		}
	case wire.Abort:
		go j.abort()
	}
}

// abort ends a job whose time is up. A Go program shows its goroutines on SIGQUIT.
func (j *job) abort() {
	explainStuck()
	signalGroup(j.pid, unix.SIGQUIT)
	select {
	case <-j.ended:
	case <-time.After(5 * time.Second):
		signalGroup(j.pid, unix.SIGKILL)
	}
}

func (j *job) copyIn() {
	var end sync.Once
	for {
		select {
		case p := <-j.input:
			if p == nil {
				end.Do(j.stdio.endInput)
				continue
			}
			_, _ = j.stdio.in.Write(p) // a command need not read its input
			_ = j.c.Send(wire.StdinAck, nil)
		case <-j.ended:
			end.Do(j.stdio.endInput)
			return
		}
	}
}

// lookPath finds a program by the job's PATH.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	for dir := range strings.SplitSeq(path, ":") {
		p := dir + "/" + name
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s: %w in %s", name, exec.ErrNotFound, path)
}

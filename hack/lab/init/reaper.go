//go:build linux

package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reaper collects the status of every process that ends, as the first process
// must, and hands out that of the ones started through it.
type reaper struct {
	mu      sync.Mutex
	waiters map[int]chan unix.WaitStatus
	idle    chan struct{} // gets a value whenever no process is left
}

func newReaper() *reaper {
	r := &reaper{waiters: map[int]chan unix.WaitStatus{}, idle: make(chan struct{}, 1)}
	child := make(chan os.Signal, 1)
	signal.Notify(child, unix.SIGCHLD)
	go func() {
		for range child {
			r.reap()
		}
	}()
	return r
}

func (r *reaper) reap() {
	for {
		var ws unix.WaitStatus
		// The lock keeps a process from being collected before start has noted it.
		r.mu.Lock()
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		if pid > 0 {
			if w := r.waiters[pid]; w != nil {
				w <- ws
				delete(r.waiters, pid)
			}
		}
		r.mu.Unlock()
		if err == unix.ECHILD {
			select {
			case r.idle <- struct{}{}:
			default:
			}
		}
		if pid <= 0 && err != unix.EINTR {
			return
		}
	}
}

// start runs a program; its status comes on the channel.
func (r *reaper) start(path string, argv []string, attr *syscall.ProcAttr) (int, <-chan unix.WaitStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return 0, nil, err
	}
	w := make(chan unix.WaitStatus, 1)
	r.waiters[pid] = w
	return pid, w, nil
}

// killAll ends every process but this one, and tells whether that was done in
// time: a process inside a driver may not end.
func (r *reaper) killAll(limit time.Duration) bool {
	select {
	case <-r.idle: // of an earlier time
	default:
	}
	_ = unix.Kill(-1, unix.SIGKILL) // ESRCH: there is none
	r.reap()
	select {
	case <-r.idle:
		return true
	case <-time.After(limit):
		return false
	}
}

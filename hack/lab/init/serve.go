//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/hack/lab/wire"
)

// serve runs the host's jobs one after the other. Frames for a job that has just
// ended are dropped.
func serve(c *wire.Conn) error {
	r := newReaper()
	code := 0
	var job *job
	ended := make(chan int, 1)
	for {
		k, p, err := c.Recv()
		if err != nil {
			return fmt.Errorf("receive from the host: %w", err)
		}
		switch k {
		case wire.Start:
			var j wire.Job
			if err := json.Unmarshal(p, &j); err != nil {
				return fmt.Errorf("read job: %w", err)
			}
			if job != nil {
				code = <-ended
			}
			job = startJob(c, r, j, ended)
		case wire.PowerOff:
			if job != nil {
				code = <-ended
			}
			return powerOff(code)
		default:
			if job != nil {
				job.frame(k, p)
			}
		}
	}
}

// environment is what every job gets.
func environment() []string {
	return []string{
		"PATH=/host/bin:/host:/usr/bin", "HOME=/root", "USER=root", "LANG=C.UTF-8", "TMPDIR=/tmp",
		"ENV=/etc/shrc",
	}
}

// explainStuck shows on the console what the kernel is waiting for.
func explainStuck() {
	_ = os.WriteFile("/proc/sys/kernel/printk", []byte("7"), 0o644)
	_ = os.WriteFile("/proc/sysrq-trigger", []byte("w"), 0o644) // tasks that cannot be interrupted
}

func signalGroup(pid int, s unix.Signal) {
	_ = unix.Kill(-pid, s) // it may be gone
}

//go:build linux

package fakekernel

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/pureverbs/rdma/abi"
)

// watcher is the goroutine that hears doorbells: it looks at the registers of mlx5, often
// after it heard something, and seldom after nothing happened for a while. Where there are
// no registers it sleeps.
type watcher struct {
	running sync.WaitGroup
	bell    chan struct{} // there are registers
	rounds  int           // since something was heard
	idle    bool          // there are none
}

// How long the watcher pauses.
const (
	busyRounds  = 50 // without a pause
	firstPause  = 20 * time.Microsecond
	lastPause   = time.Millisecond
	longRounds  = 2000 // after which
	longPause   = 4 * time.Millisecond
	sweepRounds = 8 // of which the last looks at everything, not at registers alone
)

func (w *watcher) init() { w.bell = make(chan struct{}, 1) }

// watch adds a page of registers. The lock is held.
func (k *Kernel) watch(u *mlx5UAR) {
	k.uars = append(k.uars, u)
	select {
	case k.watcher.bell <- struct{}{}:
	default:
	}
}

// startWatcher starts the goroutine where there is a device that needs it.
func (k *Kernel) startWatcher() {
	if slices.ContainsFunc(k.devices, func(d *device) bool { return d.Driver == abi.RDMA_DRIVER_MLX5 && !d.MLX5.NoExec }) {
		k.watcher.running.Go(k.listen)
	}
}

// listen is the goroutine, until Close.
func (k *Kernel) listen() {
	w := &k.watcher
	pause := time.NewTimer(time.Hour)
	defer pause.Stop()
	for k.look(w.rounds%sweepRounds == sweepRounds-1 && w.rounds > busyRounds) {
		d := w.pause()
		if d == 0 {
			runtime.Gosched()
			continue
		}
		pause.Reset(d)
		select {
		case <-k.stop:
			return
		case <-w.bell:
			w.rounds = 0
		case <-pause.C:
		}
	}
}

// pause is how long to wait now.
func (w *watcher) pause() time.Duration {
	w.rounds++
	switch {
	case w.idle:
		return time.Hour
	case w.rounds < busyRounds:
		return 0
	}
	if w.rounds > longRounds {
		return longPause
	}
	return min(firstPause<<min(w.rounds-busyRounds, 10), lastPause)
}

// look hears what there is to hear; false if the kernel is closed. Without registers it
// waits for some.
func (k *Kernel) look(sweep bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, u := range k.uars {
		if u.c.f.dev.dead {
			continue
		}
		arm, send := u.heard()
		if arm || send {
			k.watcher.rounds = 0
		}
		if arm || sweep {
			u.ringCQs()
		}
		if send {
			u.ringQPs()
		} else if sweep {
			u.flushQPs()
		}
	}
	k.watcher.idle = len(k.uars) == 0
	return !k.closed
}

// ringCQs looks which completion queues were armed: one register serves many.
func (u *mlx5UAR) ringCQs() {
	for _, q := range u.cqs {
		q.ring()
	}
}

// ringQPs runs the queue pairs of the page. Which one rang does not count, what is in its
// record does.
func (u *mlx5UAR) ringQPs() {
	k := u.c.f.k
	for _, s := range u.qps {
		if k.opts.Deferred {
			k.after(0, s.q.run)
		} else {
			k.runQP(s.q)
		}
	}
}

// flushQPs ends what was posted to queue pairs in error: a receive rings no doorbell.
func (u *mlx5UAR) flushQPs() {
	for _, s := range u.qps {
		if s.q.state == stateError {
			s.q.flush()
		}
	}
}

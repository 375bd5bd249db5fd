//go:build linux

package fakekernel

import (
	"slices"
	"time"
)

// timer is something that the kernel will do later.
type timer struct {
	due time.Time
	do  func()
}

// after has do called, under the lock, after d.
func (k *Kernel) after(d time.Duration, do func()) {
	if k.closed {
		return
	}
	k.timers = append(k.timers, timer{time.Now().Add(d), do})
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// work is the kernel's goroutine: it runs timers until Close.
func (k *Kernel) work() {
	defer close(k.done)
	pause := time.NewTimer(time.Hour)
	defer pause.Stop()
	for {
		pause.Reset(k.tick())
		select {
		case <-k.stop:
			return
		case <-k.wake:
		case <-pause.C:
		}
	}
}

// tick runs what is due, in the order in which it was asked for, and returns the time to
// the next.
func (k *Kernel) tick() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		now := time.Now()
		i := slices.IndexFunc(k.timers, func(t timer) bool { return !t.due.After(now) })
		if i < 0 {
			break
		}
		do := k.timers[i].do
		k.timers = slices.Delete(k.timers, i, i+1)
		do()
	}
	next := time.Hour
	for _, t := range k.timers {
		next = min(next, time.Until(t.due))
	}
	return max(next, 0)
}

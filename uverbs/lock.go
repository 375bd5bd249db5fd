package uverbs

import "sync"

// lock is a mutex that does nothing where the program promised that one goroutine uses the
// object.
type lock struct {
	mu  sync.Mutex
	off bool
}

func (l *lock) Lock() {
	if !l.off {
		l.mu.Lock()
	}
}

func (l *lock) Unlock() {
	if !l.off {
		l.mu.Unlock()
	}
}

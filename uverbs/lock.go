package uverbs

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pureverbs/rdma/mmio"
)

// lock protects a queue, in one of three ways: not at all, where the program promised that one
// goroutine uses the object; by a mutex, where a call of the kernel is made under it; and where
// none is, by a word that costs one locked instruction where a mutex costs two. Giving the word
// up is an ordinary store, which cannot see whether somebody waits: those who do look again by
// themselves, one at a time, and keep others from overtaking them for ever.
//
// Posting and polling call the parts, which do nothing where the lock is of another kind: they
// are smaller, and so inlined, but for one.
type lock struct {
	kind lockKind
	word uint32     // lockFree or lockHeld
	open uint32     // lockFree or lockClosed: what the word must be for those who come now
	mu   sync.Mutex // the mutex, or the turn to wait for the word
}

// What the word, and open, can be.
const (
	lockFree   = 0
	lockHeld   = 1
	lockClosed = 2 // the word never is: so nobody overtakes the one who waits
)

type lockKind uint8

const (
	byMutex lockKind = iota
	byWord
	byPromise // of the program
)

// lockKind chooses for an object of a device.
func (k *kernel) lockKind(single bool) lockKind {
	switch {
	case single:
		return byPromise
	case k.mlx5 != nil:
		return byWord
	}
	return byMutex
}

func (l *lock) Lock() {
	l.lockMutex()
	l.lockWord()
}

func (l *lock) Unlock() {
	l.unlockMutex()
	l.unlockWord()
}

func (l *lock) lockMutex() {
	if l.kind == byMutex {
		l.mu.Lock()
	}
}

func (l *lock) unlockMutex() {
	if l.kind == byMutex {
		l.mu.Unlock()
	}
}

func (l *lock) lockWord() {
	if l.kind == byWord && !atomic.CompareAndSwapUint32(&l.word, atomic.LoadUint32(&l.open), lockHeld) {
		l.wait()
	}
}

func (l *lock) unlockWord() {
	if l.kind == byWord {
		mmio.Publish32(&l.word, lockFree)
	}
}

// The pace of who waits for the word. It is held for tens of nanoseconds, unless the holder was
// interrupted, or has a [Cursor].
const (
	lockTries  = 50 // before each pause
	lockYields = 10 // pauses that only let others run
	lockNap    = 50 * time.Microsecond
)

// wait gets the word in the end.
func (l *lock) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for pause := 0; ; pause++ {
		for range lockTries {
			if atomic.LoadUint32(&l.word) == lockFree && atomic.CompareAndSwapUint32(&l.word, lockFree, lockHeld) {
				atomic.StoreUint32(&l.open, lockFree)
				return
			}
		}
		if pause < lockYields {
			runtime.Gosched()
			continue
		}
		atomic.StoreUint32(&l.open, lockClosed)
		time.Sleep(lockNap)
	}
}

package uverbs

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestLockExcludes: all kinds that lock do, whoever waits gets in, also past one who holds the
// lock for long.
func TestLockExcludes(t *testing.T) {
	const goroutines, rounds = 8, 2000
	for name, kind := range map[string]lockKind{"mutex": byMutex, "word": byWord} {
		t.Run(name, func(t *testing.T) {
			l := lock{kind: kind}
			n := 0 // the race detector watches it
			var all sync.WaitGroup
			for g := range goroutines {
				all.Go(func() {
					for i := range rounds {
						l.Lock()
						n++
						if g == 0 && i%500 == 0 {
							time.Sleep(time.Millisecond)
						}
						l.Unlock()
					}
				})
			}
			all.Wait()
			if n != goroutines*rounds {
				t.Errorf("counted to %d, want %d", n, goroutines*rounds)
			}
		})
	}
}

// TestLockInTurn: who has waited for long is next, whoever else comes; then all is as before.
func TestLockInTurn(t *testing.T) {
	l := lock{kind: byWord}
	l.Lock()
	var order []string // under the lock
	var all sync.WaitGroup
	all.Go(func() {
		l.Lock()
		order = append(order, "waited")
		l.Unlock()
	})
	for end := time.Now().Add(10 * time.Second); atomic.LoadUint32(&l.open) == lockFree; {
		if time.Now().After(end) {
			t.Fatal("the lock does not close")
		}
		time.Sleep(time.Millisecond)
	}
	l.Unlock()
	l.Lock()
	order = append(order, "came")
	l.Unlock()
	all.Wait()
	if diff := cmp.Diff([]string{"waited", "came"}, order); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if l.open != lockFree || l.word != lockFree {
		t.Errorf("left open %d, word %d", l.open, l.word)
	}
}

// TestLockPromise: where the program promised it, nothing is locked.
func TestLockPromise(t *testing.T) {
	l := lock{kind: byPromise}
	l.Lock()
	l.Lock()
	if l.word != lockFree || !l.mu.TryLock() {
		t.Error("something is locked")
	}
}

func BenchmarkLock(b *testing.B) {
	for name, kind := range map[string]lockKind{"mutex": byMutex, "word": byWord, "promise": byPromise} {
		l, n := lock{kind: kind}, 0
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				l.Lock()
				n++
				l.Unlock()
			}
		})
		if kind == byPromise {
			continue
		}
		b.Run(name+", contended", func(b *testing.B) {
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l.Lock()
					n++
					l.Unlock()
				}
			})
		})
	}
}

package mlx5

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
)

// table finds queue pairs by the 24-bit number that completions carry. It is read without a
// lock.
type table struct {
	first [tableSize]atomic.Pointer[[tableSize]atomic.Pointer[QP]]

	mu    sync.Mutex
	taken map[uint32]struct{}
	low   uint32 // all below are taken
}

const (
	tableBits = 12
	tableSize = 1 << tableBits
	anyNumber = 1<<24 - 1 // as user index says that there is none
)

// get returns the queue pair of a number, nil if there is none.
func (t *table) get(i uint32) *QP {
	if second := t.first[i>>tableBits%tableSize].Load(); second != nil {
		return second[i%tableSize].Load()
	}
	return nil
}

// reserve returns the lowest number that is not taken.
func (t *table) reserve() (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := t.low; i < anyNumber; i++ {
		if _, ok := t.taken[i]; !ok {
			t.low = i + 1
			t.note(i)
			return i, nil
		}
	}
	return 0, fmt.Errorf("%w: no user index is free", syscall.ENOMEM)
}

func (t *table) note(i uint32) {
	if t.taken == nil {
		t.taken = make(map[uint32]struct{})
	}
	t.taken[i] = struct{}{}
}

// put enters a queue pair under a number.
func (t *table) put(i uint32, q *QP) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.note(i)
	second := t.first[i>>tableBits%tableSize].Load()
	if second == nil {
		second = new([tableSize]atomic.Pointer[QP])
		t.first[i>>tableBits%tableSize].Store(second)
	}
	second[i%tableSize].Store(q)
}

// drop frees a number.
func (t *table) drop(i uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.taken, i)
	t.low = min(t.low, i)
	if second := t.first[i>>tableBits%tableSize].Load(); second != nil {
		second[i%tableSize].Store(nil)
	}
}

package rdmacm

import "sync"

// table gives each id the number that travels through the kernel as its uid and comes back
// in events: the index of a slot below, the generation of the slot above. Generations begin
// with 1, so a uid is never 0 (the kernel drops the events of uid 0), and the late event of
// a dead id cannot hit the one that took over its slot.
type table struct {
	mu    sync.Mutex
	slots []slot
	free  []uint32
}

type slot struct {
	generation uint32
	id         *ID
}

func (t *table) put(id *ID) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == 0 {
		t.free = append(t.free, uint32(len(t.slots)))
		t.slots = append(t.slots, slot{})
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	s := &t.slots[i]
	if s.generation++; s.generation == 0 {
		s.generation = 1
	}
	s.id = id
	return uint64(s.generation)<<32 | uint64(i)
}

// get returns the live id of that uid, or nil.
func (t *table) get(uid uint64) *ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.find(uid); s != nil {
		return s.id
	}
	return nil
}

func (t *table) drop(uid uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.find(uid); s != nil && s.id != nil {
		s.id = nil
		t.free = append(t.free, uint32(uid))
	}
}

func (t *table) find(uid uint64) *slot {
	i, generation := uint32(uid), uint32(uid>>32)
	if uint64(i) >= uint64(len(t.slots)) || t.slots[i].generation != generation {
		return nil
	}
	return &t.slots[i]
}

// len is the number of live ids.
func (t *table) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.slots) - len(t.free)
}

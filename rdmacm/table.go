package rdmacm

import "sync"

// table gives each id, and each membership in a multicast group, the number that travels
// through the kernel as its uid and comes back in events: the index of a slot below, the
// generation of the slot above. Generations are never 0, so a uid is not either (the kernel
// drops the events of uid 0), and the late event of a dead id cannot hit the one that took
// over its slot.
//
// The uid of an id that migrates cannot change. Each channel begins with another generation,
// so that it hardly means something else in the new table; if it does the id stays.
type table struct {
	mu      sync.Mutex
	first   uint32 // generations begin behind it
	slots   []slot
	free    []uint32
	adopted map[uint64]slot // of ids that came from another channel
	ids     int             // live ones
}

type slot struct {
	generation uint32
	id         *ID
	group      *membership // nil: the uid is the id's own
}

func (t *table) put(id *ID) uint64 { return t.add(slot{id: id}) }

func (t *table) putGroup(m *membership) uint64 { return t.add(slot{id: m.id, group: m}) }

func (t *table) add(s slot) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(s, 1)
	if len(t.free) == 0 {
		t.free = append(t.free, uint32(len(t.slots)))
		t.slots = append(t.slots, slot{generation: t.first})
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	s.generation = t.slots[i].generation
	uid := uint64(0)
	for taken := true; taken || s.generation == 0; {
		s.generation++
		uid = uint64(s.generation)<<32 | uint64(i)
		_, taken = t.adopted[uid]
	}
	t.slots[i] = s
	return uid
}

// adopt takes over a uid of another table. It reports false if the uid is taken.
func (t *table) adopt(uid uint64, s slot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, taken := t.adopted[uid]; taken || t.find(uid) != nil {
		return false
	}
	if t.adopted == nil {
		t.adopted = make(map[uint64]slot)
	}
	t.adopted[uid] = s
	t.count(s, 1)
	return true
}

// get returns the live id of that uid, or nil.
func (t *table) get(uid uint64) *ID {
	id, m := t.lookup(uid)
	if m != nil {
		return nil
	}
	return id
}

// lookup returns the live id of that uid, or that of the membership, or nil.
func (t *table) lookup(uid uint64) (*ID, *membership) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.find(uid); s != nil {
		return s.id, s.group
	}
	s := t.adopted[uid]
	return s.id, s.group
}

func (t *table) drop(uid uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.find(uid); s != nil {
		t.count(*s, -1)
		s.id, s.group = nil, nil
		t.free = append(t.free, uint32(uid))
		return
	}
	if s, ok := t.adopted[uid]; ok {
		t.count(s, -1)
		delete(t.adopted, uid)
	}
}

// dropOf is drop for a uid that may be another's.
func (t *table) dropOf(uid uint64, id *ID) {
	if owner, _ := t.lookup(uid); owner == id {
		t.drop(uid)
	}
}

// find returns the slot of a live uid.
func (t *table) find(uid uint64) *slot {
	i, generation := uint32(uid), uint32(uid>>32)
	if uint64(i) >= uint64(len(t.slots)) || t.slots[i].generation != generation || t.slots[i].id == nil {
		return nil
	}
	return &t.slots[i]
}

func (t *table) count(s slot, n int) {
	if s.group == nil {
		t.ids += n
	}
}

// len is the number of live ids.
func (t *table) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ids
}

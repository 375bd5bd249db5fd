package rdmacm

import "testing"

func TestTableUIDs(t *testing.T) {
	var tab table
	a, b := new(ID), new(ID)
	first, second := tab.put(a), tab.put(b)
	if first == 0 || second == 0 || first == second {
		t.Fatalf("got uids %#x and %#x, want two that are not 0", first, second)
	}
	if tab.get(first) != a || tab.get(second) != b || tab.len() != 2 {
		t.Error("the table does not find its ids")
	}
	tab.drop(first)
	tab.drop(first) // once is enough
	if tab.get(first) != nil || tab.len() != 1 {
		t.Errorf("got an id for a dropped uid, or %d live ids, want none and 1", tab.len())
	}
	third := tab.put(a)
	if third == first {
		t.Errorf("uid %#x was used twice", first)
	}
	if uint32(third) != uint32(first) {
		t.Errorf("got slot %d, want the free one, %d", uint32(third), uint32(first))
	}
	if tab.get(first) != nil {
		t.Error("a late event of the dead id hits the new one")
	}
}

func TestTableGenerationSkipsZero(t *testing.T) {
	tab := table{slots: []slot{{generation: 1<<32 - 1}}, free: []uint32{0}}
	if uid := tab.put(new(ID)); uid == 0 {
		t.Error("got uid 0, whose events the kernel drops")
	}
}

func TestTableUnknownUIDs(t *testing.T) {
	var tab table
	tab.put(new(ID))
	for _, uid := range []uint64{0, 1, 2 << 32, 1<<32 | 7, ^uint64(0)} {
		if tab.get(uid) != nil {
			t.Errorf("got an id for uid %#x, which was never given", uid)
		}
	}
}

// A uid that an id brought along from another channel is given to nobody else.
func TestTableAdopted(t *testing.T) {
	tab := table{first: 6}
	guest, own := new(ID), new(ID)
	if !tab.adopt(7<<32, slot{id: guest}) || tab.adopt(7<<32, slot{id: own}) {
		t.Fatal("a uid was not adopted, or twice")
	}
	uid := tab.put(own)
	if uid == 7<<32 || tab.get(7<<32) != guest || tab.get(uid) != own || tab.len() != 2 {
		t.Errorf("got uid %#x, %d ids; want another, and 2", uid, tab.len())
	}
	if tab.adopt(uid, slot{id: guest}) {
		t.Error("a uid that is in use was adopted")
	}
	tab.dropOf(7<<32, own)
	if tab.get(7<<32) != guest {
		t.Error("a uid was dropped that is another's")
	}
	tab.dropOf(7<<32, guest)
	if tab.get(7<<32) != nil || tab.len() != 1 {
		t.Errorf("%d ids are left, want 1", tab.len())
	}
	m := tab.putGroup(&membership{id: own})
	if id, group := tab.lookup(m); id != own || group == nil || tab.get(m) != nil || tab.len() != 1 {
		t.Error("a membership is not found, or taken for an id")
	}
}

//go:build linux

package fakekernel

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Registers in a trace: which words of a page were written since the last mark, and what.

// unwritten is what the tracer leaves in registers of a device that does not listen. No
// program reads there, so what is something else was written, also if it is what stood there
// before.
const unwritten = 0xeeee_eeee_eeee_eeee

// registerView is a page as it was last seen.
type registerView struct{ was []uint64 }

// pagesOf are the pages of a file, in the order of their numbers.
func (t *tracer) pagesOf(f *verbsFile) []*mlx5UAR {
	if f.mlx == nil {
		return nil
	}
	var all []*mlx5UAR
	for _, u := range f.dev.hw.pages {
		if u.c == f.mlx && u.mem != nil {
			all = append(all, u)
		}
	}
	slices.SortFunc(all, func(a, b *mlx5UAR) int { return cmp.Compare(a.id, b.id) })
	return all
}

// quiet has new pages hold what no program writes.
func (t *tracer) quiet(u *mlx5UAR) *registerView {
	v := t.pages[u]
	if v != nil {
		return v
	}
	v = &registerView{was: make([]uint64, len(u.mem)/8)}
	t.pages[u] = v
	if u.c.f.dev.MLX5.NoExec {
		for i := range v.was {
			v.was[i] = unwritten
			*view[uint64](u.mem[8*i:]) = unwritten
		}
	}
	return v
}

// moved notes that a page is another piece of memory now.
func (t *tracer) moved(u *mlx5UAR) {
	if t != nil {
		delete(t.pages, u)
		t.quiet(u)
	}
}

func (t *tracer) dumpRegisters(f *verbsFile) {
	for _, u := range t.pagesOf(f) {
		v, bell := t.quiet(u), t.bells.page(u)
		if bell != nil && !bell.rung {
			continue // the page is not there
		}
		for i := 0; i < len(v.was); {
			n := v.written(u, i)
			if n > 0 {
				t.put("  register %x+%03x %s", u.id, 8*i, words(u.mem[8*i:8*(i+n)]))
				v.take(u, i, n)
			}
			i += n + 1
		}
		if bell == nil {
			t.bells.hang(u)
		} else {
			bell.rung = false
			u.drop()
		}
	}
}

// written is how many words from one on are another than before. Doorbells do not go on from
// one half of a register to the next.
func (v *registerView) written(u *mlx5UAR, i int) (n int) {
	for i+n < len(v.was) && binary.NativeEndian.Uint64(u.mem[8*(i+n):]) != v.was[i+n] {
		n++
	}
	return n
}

// take notes what was seen.
func (v *registerView) take(u *mlx5UAR, i, n int) {
	for ; n > 0; i, n = i+1, n-1 {
		if u.c.f.dev.MLX5.NoExec {
			binary.NativeEndian.PutUint64(u.mem[8*i:], unwritten)
		} else {
			v.was[i] = binary.NativeEndian.Uint64(u.mem[8*i:])
		}
	}
}

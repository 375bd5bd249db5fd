package mmio

import (
	"fmt"
	"io/fs"
	"sync"
	"unsafe"
)

// Region is a mapping: a run of memory that lives outside the Go heap, with its
// end of life. It hands out windows that lie inside it and are aligned, so that
// an offset that came from a kernel or a device cannot lead elsewhere.
//
// Close ends the mapping. Slices and pointers that were handed out do not keep
// it alive and must not be used after Close: touching them faults. For the same
// reason a Region that is forgotten is not unmapped by the garbage collector,
// which cannot know of those pointers: the mapping leaks.
//
// A Region is safe for use by several goroutines; the memory in it is not.
type Region struct {
	mu     sync.Mutex
	mem    []byte
	unmap  func([]byte) error
	closed bool
}

// NewRegion wraps the mapping mem, as returned by mmap, and becomes its owner.
// unmap ends the mapping; Close calls it once with mem itself. A nil unmap is
// for memory that needs none, as in tests.
func NewRegion(mem []byte, unmap func([]byte) error) *Region {
	return &Region{mem: mem, unmap: unmap}
}

// Bytes returns the whole mapping, nil after Close.
func (r *Region) Bytes() []byte {
	mem, _ := r.view()
	return mem
}

// view returns the mapping and whether it is gone.
func (r *Region) view() (mem []byte, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mem, r.closed
}

// Len returns the length of the mapping in bytes, 0 after Close.
func (r *Region) Len() int { return len(r.Bytes()) }

// Uint32 returns the 32-bit word at byte offset off. The error says that the word
// is not inside the mapping, is not aligned, or wraps [fs.ErrClosed].
func (r *Region) Uint32(off int) (*uint32, error) {
	p, err := r.window(off, 4, 4)
	return (*uint32)(p), err
}

// Uint64 returns the 64-bit word at byte offset off. The error says that the word
// is not inside the mapping, is not aligned, or wraps [fs.ErrClosed].
func (r *Region) Uint64(off int) (*uint64, error) {
	p, err := r.window(off, 8, 8)
	return (*uint64)(p), err
}

// Block64 returns the 64-byte block at byte offset off, for [Copy64]. The error
// says that the block is not inside the mapping, is not 64-byte aligned, or
// wraps [fs.ErrClosed].
func (r *Region) Block64(off int) (*[64]byte, error) {
	p, err := r.window(off, 64, 64)
	return (*[64]byte)(p), err
}

// window checks that size bytes at off lie in the mapping and start at a multiple
// of align in memory. The subtraction cannot overflow, an addition could.
func (r *Region) window(off, size int, align uintptr) (unsafe.Pointer, error) {
	mem, closed := r.view()
	switch {
	case closed:
		return nil, fmt.Errorf("locate %d bytes at offset %d: %w", size, off, fs.ErrClosed)
	case off < 0 || off > len(mem)-size:
		return nil, fmt.Errorf("locate %d bytes at offset %d: outside the mapping of %d bytes", size, off, len(mem))
	}
	p := unsafe.Pointer(&mem[off])
	if uintptr(p)%align != 0 {
		return nil, fmt.Errorf("locate %d bytes at offset %d: not %d-byte aligned", size, off, align)
	}
	return p, nil
}

// Close ends the mapping. The first call returns what unmap returned, later calls
// do nothing and return nil. The caller has to make sure that no window of the
// region is in use.
func (r *Region) Close() error {
	r.mu.Lock()
	mem, unmap := r.mem, r.unmap
	r.mem, r.unmap, r.closed = nil, nil, true
	r.mu.Unlock()
	if unmap == nil {
		return nil
	}
	if err := unmap(mem); err != nil {
		return fmt.Errorf("unmap %d bytes: %w", len(mem), err)
	}
	return nil
}

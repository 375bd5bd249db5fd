package uapi

import (
	"os"
	"sync"
)

// slotSize holds the largest request that lives as long as its object: POST_SEND with
// header, body and response.
const slotSize = 64

// Arena hands out small zeroed pieces of memory off the Go heap, for requests that are
// built once and issued many times. The zero value is ready.
type Arena struct {
	mu    sync.Mutex
	pages [][]byte
	free  [][]byte
}

// Get returns a zeroed slot of slotSize bytes, 64-byte aligned.
func (a *Arena) Get() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.free) == 0 {
		page, err := AllocPages(os.Getpagesize())
		if err != nil {
			return nil, err
		}
		a.pages = append(a.pages, page)
		for len(page) >= slotSize {
			a.free = append(a.free, page[:slotSize:slotSize])
			page = page[slotSize:]
		}
	}
	slot := a.free[len(a.free)-1]
	a.free = a.free[:len(a.free)-1]
	clear(slot)
	return slot, nil
}

// Put returns a slot of Get.
func (a *Arena) Put(slot []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free = append(a.free, slot)
}

// Close frees all pages. No slot may be in use.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free = nil
	for _, page := range a.pages {
		if err := FreePages(page); err != nil {
			return err
		}
	}
	a.pages = nil
	return nil
}

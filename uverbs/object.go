package uverbs

import (
	"fmt"
	"net"
	"sync"
)

// object is the part of every kernel object that keeps the closing order right: children
// keep their parents alive, a parent with live children refuses to close, and Close counts
// once. Operations hold it shared, Close alone, so that the kernel never sees a command on
// an object that is being destroyed (it would say EBUSY).
type object struct {
	kind    string // "protection domain"
	device  string
	parents []*object

	use sync.RWMutex // held shared during an operation

	mu       sync.Mutex
	children map[any]struct{}
	closed   bool
}

// adopt makes o a child of its parents; undone by orphan. child is what keeps o reachable
// as long as its parents are.
func (o *object) adopt(child any, parents ...*object) error {
	for _, p := range parents {
		if err := p.add(child); err != nil {
			o.orphan(child)
			return err
		}
		o.parents = append(o.parents, p)
	}
	return nil
}

func (o *object) orphan(child any) {
	for _, p := range o.parents {
		p.remove(child)
	}
	o.parents = nil
}

func (o *object) add(child any) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return wrap("use "+o.kind, o.device, net.ErrClosed)
	}
	if o.children == nil {
		o.children = make(map[any]struct{})
	}
	o.children[child] = struct{}{}
	return nil
}

func (o *object) remove(child any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.children, child)
}

// begin starts an operation; end must follow if it returns nil.
func (o *object) begin(op string) error {
	o.use.RLock()
	if o.isClosed() {
		o.use.RUnlock()
		return wrap(op, o.device, net.ErrClosed)
	}
	return nil
}

func (o *object) end() { o.use.RUnlock() }

// beginAlone starts an operation that changes o itself; use.Unlock must follow if it
// returns nil.
func (o *object) beginAlone(op string) error {
	o.use.Lock()
	if o.isClosed() {
		o.use.Unlock()
		return wrap(op, o.device, net.ErrClosed)
	}
	return nil
}

func (o *object) isClosed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed
}

// close destroys o once. While o has children it refuses, and nothing has happened; after
// an error of destroy the object lives on and close may be tried again.
func (o *object) close(child any, destroy func() error) error {
	o.use.Lock()
	defer o.use.Unlock()
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return nil
	}
	if n := len(o.children); n > 0 {
		o.mu.Unlock()
		return &Error{Op: "close " + o.kind, Object: o.device, Err: ErrBusy, Hint: o.who(n)}
	}
	o.closed = true // no child can come in any more
	o.mu.Unlock()
	if err := destroy(); err != nil {
		o.mu.Lock()
		o.closed = false
		o.mu.Unlock()
		return wrap("close "+o.kind, o.device, err)
	}
	o.orphan(child)
	return nil
}

func (o *object) who(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.children {
		if s, ok := c.(fmt.Stringer); ok {
			return fmt.Sprintf("%d live on it, for one a %s: close them first", n, s)
		}
	}
	return fmt.Sprintf("%d live on it: close them first", n)
}

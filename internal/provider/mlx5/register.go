package mlx5

import (
	"errors"
	"fmt"
	"sync"

	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// Kinds of UARs: enum mlx5_ib_uapi_uar_alloc_type. One that is write-combining takes whole
// requests, one that is not takes the 8 bytes of a doorbell.
const (
	uarBlueFlame = 0
	uarPlain     = 1
)

// What is where in a UAR.
const (
	offArm       = 0x20  // arms completion queues
	offRegister  = 0x800 // the first of two registers for doorbells
	perUAR       = 2
	numberPerUAR = 4 // as the kernel counts registers: two are not for queue pairs
)

// The commands in an mmap offset of UARs that the kernel made with the context.
const (
	mapRegular = 0
	mapPlain   = 3
	mapShift   = 8 // the command is above the page's number
)

// register is where a doorbell is rung. Its two halves are used in turn: while the device
// still takes a request from one, the next goes to the other.
type register struct {
	addr
	uar    uint32  // number of the UAR
	flip   uintptr // from one half to the other, 0 with one half
	half   uintptr // 0 or flip, for the next doorbell
	copies int     // longest request that is copied, in bytes, 0 for none
	shared bool    // by queue pairs; then under mu
	mu     sync.Mutex
	users  int
}

// registers are those of a context, and how they are given to queue pairs: the first ones
// have one each for themselves and need no lock, later ones share.
type registers struct {
	static   bool // the kernel made the UARs and chooses the register
	low      int  // made for one queue pair each, at least
	total    int
	pages    []*mmio.Region
	plain    *register // for doorbells of 8 bytes
	arm      addr      // of completion queues
	armUAR   uint32
	made     int         // registers for one queue pair each
	free     []*register // of those
	shared   []*register
	numbered []*register // static: as the kernel counts, nil where none is
}

func (r *registers) init(low, total int, static bool) { r.low, r.total, r.static = low, total, static }

// StaticPages is how many pages of UARs the kernel made with the context. They are to be
// mapped now, see [Context.StaticOffsets]. From 5.7 on there are none.
func (c *Context) StaticPages() int {
	if !c.uars.static {
		return 0
	}
	return c.uars.total / (perUAR * c.limits.uars)
}

// StaticOffsets are the mmap offsets to try, one after the other, for page 0, 1 ... of
// [Context.StaticPages]. The length is one page of the system.
func (c *Context) StaticOffsets(page int) []int64 {
	at := func(command int) int64 { return int64(command<<mapShift|page) * int64(c.page) }
	if c.noBlueFlame {
		return []int64{at(mapPlain), at(mapRegular)}
	}
	return []int64{at(mapRegular)}
}

// AddStatic takes the next page of UARs over, and unmaps it in the end, even on an error,
// which says that the mapping is too small.
func (c *Context) AddStatic(mem *mmio.Region) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.uars
	base, err := c.adopt(mem)
	if err != nil {
		return err
	}
	if len(r.pages) == 1 {
		r.arm = base.add(offArm)
	}
	for range c.limits.uars {
		for k := range uintptr(numberPerUAR) {
			r.numbered = append(r.numbered, c.staticRegister(base, len(r.numbered), k))
		}
		base = base.add(uarSize)
	}
	return nil
}

// staticRegister is register k of a UAR, nil if it is not for queue pairs. Number 0 is shared
// by all that find no other, and takes no requests; one store of 8 bytes needs no lock.
func (c *Context) staticRegister(base addr, number int, k uintptr) *register {
	if k >= perUAR {
		return nil
	}
	reg := &register{addr: base.add(offRegister + k*uintptr(c.bfReg))}
	if number == 0 {
		return reg
	}
	reg.flip = uintptr(c.bfReg / 2)
	reg.copies = c.copies()
	reg.shared = number/2+number%2 < c.uars.total-c.uars.low
	return reg
}

// copies is the longest request that a register takes.
func (l *limits) copies() int {
	if l.noBlueFlame {
		return 0
	}
	return l.bfReg / 2
}

// adopt notes a mapping and measures it.
func (c *Context) adopt(mem *mmio.Region) (addr, error) {
	c.uars.pages = append(c.uars.pages, mem)
	b := mem.Bytes()
	if len(b) < c.page || addrOf(b).number()%blockSize != 0 {
		return addr{}, fmt.Errorf("%w: %d bytes are no page of UARs", provider.ErrCorrupt, len(b))
	}
	return addrOf(b), nil
}

// NeedUAR tells whether a UAR must be allocated, mapped and added before the next completion
// queue, or queue pair, is planned, and of what type. The caller makes sure that nobody else
// does so before the plan is there. If none of type 0 can be had, PlanQP may still find a
// register to share.
func (c *Context) NeedUAR(forQP bool) (typ uint64, need bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.uars
	switch {
	case r.static:
		return 0, false
	case !forQP || c.copies() == 0:
		return uarPlain, r.plain == nil
	}
	return uarBlueFlame, len(r.free) == 0 && (r.made < r.low || len(r.shared) < r.total-r.low)
}

// AddUAR takes an allocated and mapped UAR over, and unmaps it in the end, even on an error,
// which says that the mapping is too small. pageID is the kernel's number of it.
func (c *Context) AddUAR(typ uint64, pageID uint32, mem *mmio.Region) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.uars
	base, err := c.adopt(mem)
	if err != nil {
		return err
	}
	if typ == uarPlain {
		r.plain = &register{addr: base.add(offRegister), uar: pageID}
		r.arm, r.armUAR = base.add(offArm), pageID
		return nil
	}
	own := r.made < r.low
	for i := range perUAR * c.limits.uars {
		uar, k := i/perUAR, uintptr(i%perUAR)
		reg := &register{
			addr: base.add(uintptr(uar*uarSize) + offRegister + k*uintptr(c.bfReg)),
			uar:  pageID + uint32(uar), flip: uintptr(c.bfReg / 2), copies: c.copies(), shared: !own,
		}
		if own {
			r.free = append(r.free, reg)
			r.made++
		} else {
			r.shared = append(r.shared, reg)
		}
	}
	return nil
}

var errNoRegister = errors.New("no register to ring a doorbell: UARs cannot be had")

// take chooses the register of a new queue pair, nil if the kernel will.
func (c *Context) takeRegister() (*register, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.uars
	switch {
	case r.static:
		return nil, nil
	case len(r.free) > 0:
		reg := r.free[0]
		r.free = r.free[1:]
		return reg, nil
	case len(r.shared) > 0:
		least := r.shared[0]
		for _, reg := range r.shared[1:] {
			if reg.users < least.users {
				least = reg
			}
		}
		least.users++
		return least, nil
	case r.plain != nil:
		return r.plain, nil
	}
	return nil, errNoRegister
}

// chosen is the register that the kernel chose.
func (c *Context) chosen(number uint32) (*register, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.uars.numbered; uint64(number) < uint64(len(r)) && r[number] != nil {
		return r[number], nil
	}
	return nil, fmt.Errorf("%w: register %d", provider.ErrCorrupt, number)
}

// giveRegister takes a register back.
func (c *Context) giveRegister(reg *register) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r := &c.uars; {
	case reg == nil, reg == r.plain, r.static:
	case reg.shared:
		reg.users--
	default:
		r.free = append(r.free, reg)
	}
}

// armPlace is where completion queues are armed, and the number of that UAR. Where the kernel
// made the UARs it has no number: the kernel takes the first.
func (c *Context) armPlace() (addr, uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uars.arm.p == nil {
		return addr{}, 0, errNoRegister
	}
	return c.uars.arm, c.uars.armUAR, nil
}

func (r *registers) close() error {
	var errs []error
	for _, mem := range r.pages {
		errs = append(errs, mem.Close())
	}
	pages := registers{low: r.low, total: r.total, static: r.static}
	*r = pages
	return errors.Join(errs...)
}

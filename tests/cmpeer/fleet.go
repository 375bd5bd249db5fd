package cmpeer

import (
	"errors"

	"github.com/pureverbs/rdma/rdmacm"
)

// Fleet are many connections on one event channel, with as many messages on each.
type Fleet struct {
	Connections int
	Messages    int
	Size        int

	nodes map[*rdmacm.ID]*node
	order []*node
}

func (f *Fleet) reset() { f.nodes, f.order = map[*rdmacm.ID]*node{}, nil }

func (f *Fleet) add(id *rdmacm.ID) *node {
	n := newNode(id)
	f.nodes[id], f.order = n, append(f.order, n)
	return n
}

func (f *Fleet) close() error {
	errs := make([]error, len(f.order))
	for i, n := range f.order {
		errs[i] = n.owned.Close()
	}
	return errors.Join(errs...)
}

// all tells whether all connections are there, and each of them is so.
func (f *Fleet) all(is func(*node) bool) func() bool {
	return func() bool {
		for _, n := range f.order {
			if !is(n) {
				return false
			}
		}
		return len(f.order) == f.Connections
	}
}

func up(n *node) bool   { return n.up }
func gone(n *node) bool { return n.gone }

// slots is how many messages a connection has: none, if they are empty.
func (f *Fleet) slots() int {
	if f.Size == 0 {
		return 0
	}
	return f.Messages
}

// slotsFrom are the numbers of n slots.
func slotsFrom(first, n int) []int {
	slots := make([]int, n)
	for i := range slots {
		slots[i] = first + i
	}
	return slots
}

// dial makes the ids and starts to resolve the address.
func (f *Fleet) dial(ch *rdmacm.EventChannel, ps rdmacm.PortSpace, o *Options) error {
	for range f.Connections {
		id, err := ch.NewID(ps)
		if err != nil {
			return err
		}
		if err := f.add(id).id.ResolveAddr(noAddr, o.Addr, resolveTimeout); err != nil {
			return err
		}
	}
	return nil
}

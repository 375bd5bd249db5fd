//go:build linux

package verbstest

import (
	"errors"
	"testing"

	"github.com/pureverbs/rdma/uverbs"
)

// HotPath returns one step of each operation of the data path, to be measured. Requests are
// literals at the call, as programs write them.
func HotPath(t testing.TB, device func(testing.TB) *uverbs.Device) map[string]func() {
	u := Suite{Device: device}
	sender, _ := u.newPair(t, 4096)
	receiver, _ := u.newPair(t, 4096)
	wcs := make([]uverbs.WC, 16)
	check := func(n int, err error) {
		if err != nil && !errors.Is(err, uverbs.ErrQueueFull) {
			t.Fatal(n, err)
		}
	}
	return map[string]func(){
		// A write of nothing needs no receive at the peer, and its completion is polled here.
		"PostSend+Poll": func() {
			check(sender.qp.PostSend([]uverbs.SendWR{{ID: 1, Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled}}))
			check(sender.cq.Poll(wcs))
		},
		"PostSend inline": func() {
			check(sender.qp.PostSend([]uverbs.SendWR{{
				ID: 1, Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled | uverbs.SendInline, Inline: [][]byte{nil},
			}}))
			check(sender.cq.Poll(wcs))
		},
		"PostRecv": func() { // full after a while, which is the same work but the last store
			check(receiver.qp.PostRecv([]uverbs.RecvWR{{ID: 1, SGL: []uverbs.SGE{receiver.mr.SGE(0, 64)}}}))
		},
		"Poll empty": func() { check(receiver.cq.Poll(wcs)) },
		"Arm":        func() { check(0, receiver.cq.Arm(false)) },
	}
}

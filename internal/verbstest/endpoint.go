//go:build linux

package verbstest

import (
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// Endpoint is one of everything, with a connection that has carried messages, for tests of
// what happens to it.
type Endpoint struct {
	Context *uverbs.Context
	PD      *uverbs.PD
	CQ      *uverbs.CQ
	QP      *uverbs.QP
	MR      *uverbs.MR
	SRQ     *uverbs.SRQ
	Idle    *uverbs.CompChannel // of no queue

	others []closer
}

// NewEndpoint makes one. Close is the caller's, and closes the peer, too.
func (u *Suite) NewEndpoint(t testing.TB) *Endpoint {
	t.Helper()
	a, b := u.pair(t, 4096)
	works(t, a, b)
	p := &Endpoint{Context: a.ctx, PD: a.pd, CQ: a.cq, QP: a.qp, MR: a.mr}
	p.SRQ = a.newSRQ(t, 8, 1, 0)
	var err error
	p.Idle, err = a.ctx.NewCompChannel()
	testutil.Must(t, err)
	p.others = []closer{b.qp, b.mr, b.cq, b.ch, b.pd, b.ctx, a.ch}
	if u.has(t, datagrams) {
		ah := a.handle(t, a.way(t, b.host))
		d := a.host.make(t, shape{Type: uverbs.QPTypeUD})
		d.toDatagrams(t, qkey)
		testutil.Must(t, d.qp.AttachMulticast(group, 0))
		p.others = append([]closer{d.qp, ah}, p.others...)
	}
	if u.has(t, windows) {
		p.others = append([]closer{a.window(t, uverbs.MWType1)}, p.others...)
	}
	return p
}

// Close closes everything, children first.
func (p *Endpoint) Close(t testing.TB) {
	t.Helper()
	closeAll(t, p.QP, p.SRQ, p.MR)
	n := len(p.others) - 1
	closeAll(t, p.others[:n]...)
	closeAll(t, p.CQ, p.Idle, p.others[n], p.PD, p.Context)
}

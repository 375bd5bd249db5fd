//go:build linux

package verbstest

import (
	"context"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// side is one end of a pair of queue pairs that are connected by hand within one process.
type side struct {
	ctx *uverbs.Context
	pd  *uverbs.PD
	ch  *uverbs.CompChannel
	cq  *uverbs.CQ
	qp  *uverbs.QP
	mr  *uverbs.MR
}

const allAccess = uverbs.AccessLocalWrite | uverbs.AccessRemoteWrite | uverbs.AccessRemoteRead

func (u *Suite) newSide(t testing.TB, size int, limits uverbs.QPCap) *side {
	t.Helper()
	var (
		s   side
		err error
	)
	s.ctx, err = u.Device(t).Open()
	testutil.Must(t, err)
	s.pd, err = s.ctx.AllocPD()
	testutil.Must(t, err)
	s.ch, err = s.ctx.NewCompChannel()
	testutil.Must(t, err)
	s.cq, err = s.ctx.CreateCQ(256, s.ch)
	testutil.Must(t, err)
	s.qp, err = s.pd.CreateQP(&uverbs.QPInitAttr{SendCQ: s.cq, Cap: limits})
	testutil.Must(t, err)
	s.mr, err = s.pd.AllocMR(size, allAccess)
	testutil.Must(t, err)
	t.Cleanup(func() { s.close(t) })
	return &s
}

func (s *side) close(t testing.TB) {
	for _, c := range []interface{ Close() error }{s.mr, s.qp, s.cq, s.ch, s.pd, s.ctx} {
		if err := c.Close(); err != nil {
			t.Errorf("close %v: %v", c, err)
		}
	}
}

// connect brings the queue pair to RTS towards peer; both sit behind the same port.
func (s *side) connect(t testing.TB, peer *side) {
	t.Helper()
	testutil.Must(t, s.qp.Modify(&uverbs.QPAttr{State: uverbs.StateInit, PortNum: 1, AccessFlags: allAccess},
		uverbs.QPAttrState|uverbs.QPAttrPKeyIndex|uverbs.QPAttrPort|uverbs.QPAttrAccessFlags))
	port, err := s.ctx.QueryPort(1)
	testutil.Must(t, err)
	gid := firstRoutable(t, peer.ctx)
	own := firstRoutable(t, s.ctx)
	testutil.Must(t, s.qp.Modify(&uverbs.QPAttr{
		State: uverbs.StateRTR, PathMTU: port.ActiveMTU, DestQPNum: peer.qp.Num(), MaxDestRDAtomic: 4,
		MinRNRTimer: uverbs.DefaultMinRNRTimer,
		AH:          uverbs.AHAttr{DGID: gid.GID, SGIDIndex: uint8(own.Index), IsGlobal: true, HopLimit: 64, PortNum: 1},
	}, uverbs.QPAttrState|uverbs.QPAttrAV|uverbs.QPAttrPathMTU|uverbs.QPAttrDestQPN|uverbs.QPAttrRQPSN|
		uverbs.QPAttrMaxDestRDAtomic|uverbs.QPAttrMinRNRTimer))
	testutil.Must(t, s.qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: 4},
		uverbs.QPAttrState|uverbs.QPAttrTimeout|uverbs.QPAttrRetryCnt|uverbs.QPAttrRNRRetry|uverbs.QPAttrSQPSN|
			uverbs.QPAttrMaxQPRDAtomic))
}

func firstRoutable(t testing.TB, c *uverbs.Context) uverbs.GIDEntry {
	t.Helper()
	table, err := c.GIDTable()
	testutil.Must(t, err)
	for _, e := range table {
		if e.Type != uverbs.GIDTypeRoCEv1 && e.GID.Addr().Is4() {
			return e
		}
	}
	t.Fatalf("no IPv4 RoCE v2 entry in %v", table)
	return uverbs.GIDEntry{}
}

var defaultCap = uverbs.QPCap{MaxSendWR: 32, MaxRecvWR: 32, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 128}

func (u *Suite) newPair(t testing.TB, size int) (a, b *side) {
	a, b = u.newSide(t, size, defaultCap), u.newSide(t, size, defaultCap)
	a.connect(t, b)
	b.connect(t, a)
	return a, b
}

// next waits for one completion.
func (s *side) next(t testing.TB) uverbs.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var wcs [1]uverbs.WC
	_, err := s.cq.Wait(ctx, wcs[:])
	testutil.Must(t, err)
	return wcs[0]
}

func (s *side) ok(t testing.TB, id uint64, op uverbs.WCOpcode) uverbs.WC {
	t.Helper()
	wc := s.next(t)
	testutil.Must(t, wc.Err())
	if wc.ID != id || wc.Opcode != op {
		t.Fatalf("got completion %+v, want id %d, %v", wc, id, op)
	}
	return wc
}

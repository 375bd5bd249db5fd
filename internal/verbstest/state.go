//go:build linux

package verbstest

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) stateTests() []test {
	return []test{
		{"StatesByHand", u.statesByHand},
		{"AttributeMasks", u.attributeMasks},
		{"ResetAndReuse", u.resetAndReuse},
		{"DrainedQueue", u.drainedQueue},
		{"KernelRefusesValues", u.kernelRefusesValues},
	}
}

// step is a transition and the attributes that it needs.
type step struct {
	to       uverbs.QPState
	required uverbs.QPAttrMask
}

// steps are the way from RESET to RTS (IBTA volume 1, table 91).
func steps(typ uverbs.QPType) []step {
	switch typ {
	case uverbs.QPTypeUD:
		return []step{{uverbs.StateInit, toInitUD}, {uverbs.StateRTR, uverbs.QPAttrState}, {uverbs.StateRTS, uverbs.QPAttrState | uverbs.QPAttrSQPSN}}
	case uverbs.QPTypeUC:
		return []step{{uverbs.StateInit, toInit}, {uverbs.StateRTR, toRTRUC}, {uverbs.StateRTS, toRTSUC}}
	}
	return []step{{uverbs.StateInit, toInit}, {uverbs.StateRTR, toRTRRC}, {uverbs.StateRTS, toRTSRC}}
}

// values are good for every transition.
func (s *side) values(t testing.TB, to uverbs.QPState) *uverbs.QPAttr {
	t.Helper()
	return &uverbs.QPAttr{
		State: to, PortNum: 1, QKey: qkey, AccessFlags: fullAccess, PathMTU: uverbs.MTU256, DestQPNum: s.qp.Num(),
		MaxDestRDAtomic: 1, MinRNRTimer: 12, AH: s.way(t, s.host), Timeout: 14, RetryCnt: retries, RNRRetry: 7, MaxRDAtomic: 1,
	}
}

// go brings a fresh queue pair to a state on the way to RTS.
func (s *side) advance(t testing.TB, to uverbs.QPState) {
	t.Helper()
	for _, st := range steps(s.typ()) {
		if st.to <= to {
			testutil.Must(t, s.qp.Modify(s.values(t, st.to), st.required))
		}
	}
	if s.qp.State() != to {
		t.Fatalf("state is %v, want %v", s.qp.State(), to)
	}
}

// transports are the types that the device has and that are connected by hand.
func (u *Suite) transports(t *testing.T) []uverbs.QPType {
	u.needs(t, byHand)
	return []uverbs.QPType{uverbs.QPTypeRC, uverbs.QPTypeUC, uverbs.QPTypeUD}
}

// statesByHand: each type walks up to RTS, to SQD and back, to ERR and to RESET; the kernel
// says the same as the library.
func (u *Suite) statesByHand(t *testing.T) {
	h := u.newHost(t, 4096)
	for _, typ := range u.transports(t) {
		s := h.make(t, shape{Type: typ})
		check := func(want uverbs.QPState) {
			t.Helper()
			got, err := s.qp.Query(uverbs.QPAttrState)
			if err != nil || got.State != want || s.qp.State() != want {
				t.Errorf("%v: the kernel says %v (%v), the library %v, want %v", typ, got.State, err, s.qp.State(), want)
			}
		}
		check(uverbs.StateReset)
		for _, st := range steps(typ) {
			testutil.Must(t, s.qp.Modify(s.values(t, st.to), st.required))
			check(st.to)
		}
		for _, to := range []uverbs.QPState{uverbs.StateError, uverbs.StateReset} {
			testutil.Must(t, s.qp.Modify(&uverbs.QPAttr{State: to}, uverbs.QPAttrState))
			check(to)
		}
	}
}

// attributeMasks: one attribute too few is named, and one too many, before the kernel is
// asked, and the queue pair stays where it is.
func (u *Suite) attributeMasks(t *testing.T) {
	h := u.newHost(t, 4096)
	for _, typ := range u.transports(t) {
		s := h.make(t, shape{Type: typ})
		from := uverbs.StateReset
		for _, st := range steps(typ) {
			for bit := uverbs.QPAttrMask(2); bit < 1<<21; bit <<= 1 {
				if st.required&bit == 0 {
					continue
				}
				err := s.qp.Modify(s.values(t, st.to), st.required&^bit)
				if !errors.Is(err, uverbs.ErrInvalid) || !strings.Contains(err.Error(), bit.String()) {
					t.Errorf("%v from %v to %v without %v: got %v, want ErrInvalid and the name", typ, from, st.to, bit, err)
				}
			}
			if s.qp.State() != from {
				t.Fatalf("%v: state is %v, want %v", typ, s.qp.State(), from)
			}
			testutil.Must(t, s.qp.Modify(s.values(t, st.to), st.required))
			from = st.to
		}
		for _, to := range []uverbs.QPState{uverbs.StateInit, uverbs.StateRTR, uverbs.StateSQE, 99} {
			if err := s.qp.Modify(s.values(t, to), uverbs.QPAttrState); !errors.Is(err, uverbs.ErrInvalid) {
				t.Errorf("%v from RTS to %v: got %v, want ErrInvalid", typ, to, err)
			}
		}
		if err := s.qp.Modify(s.values(t, 0), 1<<24); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%v with an unknown attribute: got %v, want ErrInvalid", typ, err)
		}
	}
}

// resetAndReuse: a queue pair that was reset connects again, and nothing old comes up.
func (u *Suite) resetAndReuse(t *testing.T) {
	u.needs(t, byHand)
	a, b := u.pair(t, 4096)
	for round := range 3 {
		works(t, a, b)
		b.recv(t, 77, 0, 64) // left over
		for _, s := range []*side{a, b} {
			testutil.Must(t, s.qp.Modify(&uverbs.QPAttr{State: uverbs.StateReset}, uverbs.QPAttrState))
		}
		if n, err := a.qp.PostSend([]uverbs.SendWR{{Opcode: uverbs.OpSend}}); n != 0 || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("round %d: send in RESET: posted %d, %v", round, n, err)
		}
		for _, s := range []*side{a, b} {
			for {
				var wcs [8]uverbs.WC
				n, err := s.cq.Poll(wcs[:])
				testutil.Must(t, err)
				if n == 0 {
					break
				}
			}
		}
		a.connect(t, b)
		b.connect(t, a)
	}
	works(t, a, b)
}

// drainedQueue: in SQD nothing new goes out; back in RTS it does.
func (u *Suite) drainedQueue(t *testing.T) {
	u.needs(t, byHand)
	u.needs(t, drained)
	a, b := u.pair(t, 4096)
	works(t, a, b)
	testutil.Must(t, a.qp.Modify(&uverbs.QPAttr{State: uverbs.StateSQD}, uverbs.QPAttrState))
	waitFor(t, "an empty send queue", func() bool {
		attr, err := a.qp.Query(uverbs.QPAttrState)
		testutil.Must(t, err)
		return !attr.SQDraining
	})
	testutil.Must(t, a.qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTS}, uverbs.QPAttrState))
	works(t, a, b)
}

// kernelRefusesValues: a good mask with a bad value comes back with the kernel's errno, the
// transition and what may be the reason.
func (u *Suite) kernelRefusesValues(t *testing.T) {
	u.needs(t, byHand)
	h := u.newHost(t, 4096)
	for what, change := range map[string]func(*uverbs.QPAttr){
		"an empty GID": func(a *uverbs.QPAttr) { a.AH.SGIDIndex = 200 },
		"no GRH":       func(a *uverbs.QPAttr) { a.AH.IsGlobal = false },
		"port 9":       func(a *uverbs.QPAttr) { a.AH.PortNum = 9 },
	} {
		s := h.make(t, shape{})
		s.advance(t, uverbs.StateInit)
		attr := s.values(t, uverbs.StateRTR)
		change(attr)
		err := s.qp.Modify(attr, toRTRRC)
		var errno syscall.Errno
		var e *uverbs.Error
		if !errors.As(err, &errno) || !errors.As(err, &e) || e.Hint == "" || !strings.Contains(err.Error(), "INIT to RTR") ||
			!strings.Contains(err.Error(), fmt.Sprint(s.qp.Num())) {
			t.Errorf("%s: got %v, want an errno, the queue pair, the transition and a hint", what, err)
		}
		if s.qp.State() != uverbs.StateInit {
			t.Errorf("%s: state is %v, want INIT", what, s.qp.State())
		}
	}
}

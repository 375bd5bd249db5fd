package uverbs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/uverbs"
)

// Two queue pairs of one device are connected by hand, and a message goes from a to b. On
// two machines the numbers and GIDs would first travel over a connection of another kind;
// package rdmacm does all of that.
func Example() {
	kernel := fakekernel.New(fakekernel.Options{}) // on a real kernel leave the option away
	defer kernel.Close()
	device := must(uverbs.Devices(uverbs.WithSystem(kernel.System())))[0]

	ctx := must(device.Open())
	pd := must(ctx.AllocPD())
	channel := must(ctx.NewCompChannel())
	cq := must(ctx.CreateCQ(16, channel))
	mr := must(pd.AllocMR(4096, uverbs.AccessLocalWrite))
	attr := &uverbs.QPInitAttr{SendCQ: cq, Cap: uverbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}
	a, b := must(pd.CreateQP(attr)), must(pd.CreateQP(attr))
	check(connect(a, b)) // see the example of QP.Modify
	check(connect(b, a))

	// The receive comes first: b takes the message into the first half of the memory, a
	// sends it from the second.
	must(b.PostRecv([]uverbs.RecvWR{{ID: 1, SGL: []uverbs.SGE{mr.SGE(0, 2048)}}}))
	n := copy(mr.Bytes()[2048:], "hello")
	must(a.PostSend([]uverbs.SendWR{{ID: 2, Opcode: uverbs.OpSend, SGL: []uverbs.SGE{mr.SGE(2048, n)}}}))

	wcs := make([]uverbs.WC, 16)
	must(cq.Wait(context.Background(), wcs))
	check(wcs[0].Err())
	fmt.Printf("request %d received %q\n", wcs[0].ID, mr.Bytes()[:wcs[0].ByteLen])

	// Children before parents.
	check(errors.Join(a.Close(), b.Close(), mr.Close(), cq.Close(), channel.Close(), pd.Close(), ctx.Close()))
	// Output:
	// request 1 received "hello"
}

// The steps that connect a reliable queue pair to a peer. Each takes the attributes that its
// mask names.
func ExampleQP_Modify() {
	p := newPair()
	defer p.close()
	qp := must(p.pd.CreateQP(&uverbs.QPInitAttr{SendCQ: p.a.SendCQ(), Cap: p.a.Cap()}))
	own := must(uverbs.FindGID(must(p.ctx.GIDTable()), 1, netip.MustParseAddr("10.9.0.1")))
	peer, gid := p.b.Num(), own.GID // in earnest the peer tells its number and its GID

	check(qp.Modify(&uverbs.QPAttr{
		State: uverbs.StateInit, PortNum: 1, AccessFlags: uverbs.AccessRemoteRead, // what the peer may do
	}, uverbs.QPAttrState|uverbs.QPAttrPort|uverbs.QPAttrPKeyIndex|uverbs.QPAttrAccessFlags))
	// From here on receives may be posted.
	check(qp.Modify(&uverbs.QPAttr{
		State: uverbs.StateRTR, DestQPNum: peer, RQPSN: 0, PathMTU: uverbs.MTU1024,
		AH:              uverbs.AHAttr{IsGlobal: true, DGID: gid, SGIDIndex: uint8(own.Index), HopLimit: 64, PortNum: 1},
		MaxDestRDAtomic: 1, MinRNRTimer: uverbs.DefaultMinRNRTimer,
	}, uverbs.QPAttrState|uverbs.QPAttrDestQPN|uverbs.QPAttrRQPSN|uverbs.QPAttrPathMTU|uverbs.QPAttrAV|
		uverbs.QPAttrMaxDestRDAtomic|uverbs.QPAttrMinRNRTimer))
	check(qp.Modify(&uverbs.QPAttr{
		State: uverbs.StateRTS, SQPSN: 0, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: 1,
	}, uverbs.QPAttrState|uverbs.QPAttrSQPSN|uverbs.QPAttrTimeout|uverbs.QPAttrRetryCnt|uverbs.QPAttrRNRRetry|
		uverbs.QPAttrMaxQPRDAtomic))
	fmt.Println(qp.State())

	// A mask that does not fit is refused, and the error says why.
	err := qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTS, PortNum: 1}, uverbs.QPAttrState|uverbs.QPAttrPort)
	fmt.Println(errors.Is(err, uverbs.ErrInvalid))
	check(qp.Close())
	// Output:
	// RTS
	// true
}

// A wait ends with its context, and no completion is lost by that.
func ExampleCQ_Wait() {
	p := newPair()
	defer p.close()
	cq, wcs := p.b.RecvCQ(), make([]uverbs.WC, 8)
	must(p.b.PostRecv([]uverbs.RecvWR{{ID: 1, SGL: []uverbs.SGE{p.bmem.SGE(0, 64)}}}))

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := cq.Wait(ctx, wcs)
	fmt.Println("nothing yet:", errors.Is(err, context.DeadlineExceeded))

	must(p.a.PostSend([]uverbs.SendWR{{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{p.amem.SGE(0, 5)}}}))
	n := must(cq.Wait(context.Background(), wcs))
	for _, wc := range wcs[:n] {
		check(wc.Err())
		fmt.Printf("request %d: %v, %d bytes\n", wc.ID, wc.Opcode, wc.ByteLen)
	}
	// Output:
	// nothing yet: true
	// request 1: RECV, 5 bytes
}

// A cursor reads completions where they are, and of each only what is asked for.
func ExampleCursor() {
	p := newPair()
	defer p.close()
	wrs := make([]uverbs.SendWR, 3)
	for i := range wrs {
		wrs[i] = uverbs.SendWR{
			ID: uint64(i), Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{p.amem.SGE(0, 64)},
			RemoteAddr: p.bmem.Addr(), RKey: p.bmem.RKey(),
		}
	}
	must(p.a.PostSend(wrs))

	for done := 0; done < len(wrs); {
		cur := p.a.SendCQ().Start() // nobody else polls the queue until End
		for cur.Next() {
			if cur.Status() != uverbs.WCSuccess {
				log.Fatal(cur.WC().Err()) // WC decodes all of it
			}
			fmt.Println("written:", cur.ID())
			done++
		}
		check(cur.End())
	}
	// Output:
	// written: 0
	// written: 1
	// written: 2
}

// A builder makes requests in the queue itself: data for the peer's memory, and a message
// to say that it is there. Both are posted at once.
func ExampleSendBuilder() {
	p := newPair()
	defer p.close()
	must(p.b.PostRecv([]uverbs.RecvWR{{ID: 1, SGL: []uverbs.SGE{p.bmem.SGE(0, 64)}}}))
	size := copy(p.amem.Bytes(), "a long story")

	b := p.a.StartSend()
	b.Write(2, 0, p.bmem.Addr()+1024, p.bmem.RKey()).SGE(p.amem.SGE(0, size))
	b.Send(3, uverbs.SendSignaled).Inline([]byte("read it"))
	n, err := b.Complete() // or Abort
	check(err)
	fmt.Println(n, "posted")

	wc := wait(p.b.RecvCQ())
	fmt.Printf("%s: %s\n", p.bmem.Bytes()[:wc.ByteLen], p.bmem.Bytes()[1024:1024+size])
	// Output:
	// 2 posted
	// read it: a long story
}

// pair is what most examples begin with: an open device, two queue pairs that are connected,
// and memory for each of them.
type pair struct {
	kernel     *fakekernel.Kernel
	ctx        *uverbs.Context
	gid        uverbs.GIDEntry // of both
	pd         *uverbs.PD
	channel    *uverbs.CompChannel
	a, b       *uverbs.QP
	amem, bmem *uverbs.MR
}

const allAccess = uverbs.AccessLocalWrite | uverbs.AccessRemoteWrite | uverbs.AccessRemoteRead | uverbs.AccessRemoteAtomic

// newDevice opens a device of the fake kernel; queue pairs there are none.
func newDevice() *pair {
	p := &pair{kernel: fakekernel.New(fakekernel.Options{})}
	p.ctx = must(must(uverbs.Devices(uverbs.WithSystem(p.kernel.System())))[0].Open())
	p.gid = must(uverbs.FindGID(must(p.ctx.GIDTable()), 1, netip.MustParseAddr("10.9.0.1")))
	p.pd = must(p.ctx.AllocPD())
	p.channel = must(p.ctx.NewCompChannel())
	p.amem = must(p.pd.AllocMR(4096, allAccess))
	p.bmem = must(p.pd.AllocMR(4096, allAccess))
	return p
}

func newPair() *pair {
	p := newDevice()
	p.a, p.b = p.newQP(uverbs.QPTypeRC, nil), p.newQP(uverbs.QPTypeRC, nil)
	check(connect(p.a, p.b))
	check(connect(p.b, p.a))
	return p
}

// newQP makes a queue pair with a completion queue of its own.
func (p *pair) newQP(typ uverbs.QPType, srq *uverbs.SRQ) *uverbs.QP {
	return must(p.pd.CreateQP(&uverbs.QPInitAttr{
		Type: typ, SendCQ: must(p.ctx.CreateCQ(16, p.channel)), SRQ: srq,
		Cap: uverbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 64},
	}))
}

func (p *pair) close() {
	for _, qp := range []*uverbs.QP{p.a, p.b} {
		if qp != nil {
			check(errors.Join(qp.Close(), qp.SendCQ().Close()))
		}
	}
	check(errors.Join(p.amem.Close(), p.bmem.Close(), p.channel.Close(), p.pd.Close(), p.ctx.Close()))
	p.kernel.Close()
}

// connect brings a queue pair to state RTS, towards a peer on the same device.
func connect(qp, peer *uverbs.QP) error {
	gid := must(uverbs.FindGID(must(qp.PD().Context().GIDTable()), 1, netip.MustParseAddr("10.9.0.1")))
	return errors.Join(
		qp.Modify(&uverbs.QPAttr{State: uverbs.StateInit, PortNum: 1, AccessFlags: allAccess},
			uverbs.QPAttrState|uverbs.QPAttrPort|uverbs.QPAttrPKeyIndex|uverbs.QPAttrAccessFlags),
		qp.Modify(&uverbs.QPAttr{
			State: uverbs.StateRTR, DestQPNum: peer.Num(), PathMTU: uverbs.MTU1024, MaxDestRDAtomic: 4,
			AH:          uverbs.AHAttr{IsGlobal: true, DGID: gid.GID, SGIDIndex: uint8(gid.Index), HopLimit: 64, PortNum: 1},
			MinRNRTimer: uverbs.DefaultMinRNRTimer,
		}, uverbs.QPAttrState|uverbs.QPAttrDestQPN|uverbs.QPAttrRQPSN|uverbs.QPAttrPathMTU|uverbs.QPAttrAV|
			uverbs.QPAttrMaxDestRDAtomic|uverbs.QPAttrMinRNRTimer),
		qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: 4},
			uverbs.QPAttrState|uverbs.QPAttrSQPSN|uverbs.QPAttrTimeout|uverbs.QPAttrRetryCnt|uverbs.QPAttrRNRRetry|
				uverbs.QPAttrMaxQPRDAtomic),
	)
}

// next waits for a completion.
func next(cq *uverbs.CQ) uverbs.WC {
	var wcs [1]uverbs.WC
	must(cq.Wait(context.Background(), wcs[:]))
	return wcs[0]
}

// wait waits for a completion that must be a success.
func wait(cq *uverbs.CQ) uverbs.WC {
	wc := next(cq)
	check(wc.Err())
	return wc
}

// must is for short examples. Programs look at their errors.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

package uverbs_test

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/pureverbs/rdma/uverbs"
)

// Datagrams there and back: a makes an address handle from the GID of b, b makes one from
// the datagram that it received.
func ExampleAH() {
	p := newDevice()
	defer p.close()
	p.a, p.b = p.newQP(uverbs.QPTypeUD, nil), p.newQP(uverbs.QPTypeUD, nil)
	const qkey = 0x1234 // of both; the sender must name that of the receiver
	for _, qp := range []*uverbs.QP{p.a, p.b} {
		check(qp.Modify(&uverbs.QPAttr{State: uverbs.StateInit, PortNum: 1, QKey: qkey},
			uverbs.QPAttrState|uverbs.QPAttrPort|uverbs.QPAttrPKeyIndex|uverbs.QPAttrQKey))
		check(qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTR}, uverbs.QPAttrState))
		check(qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTS}, uverbs.QPAttrState|uverbs.QPAttrSQPSN))
	}
	// The routing header comes before the message.
	must(p.a.PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{p.amem.SGE(0, uverbs.GRHSize+64)}}}))
	must(p.b.PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{p.bmem.SGE(0, uverbs.GRHSize+64)}}}))
	send := func(qp *uverbs.QP, to uverbs.Dest, text string) {
		must(qp.PostSend([]uverbs.SendWR{{
			Opcode: uverbs.OpSend, Flags: uverbs.SendInline, Inline: [][]byte{[]byte(text)}, Dest: to,
		}}))
	}

	toB := must(p.pd.CreateAH(&uverbs.AHAttr{
		IsGlobal: true, DGID: p.gid.GID, SGIDIndex: uint8(p.gid.Index), HopLimit: 64, PortNum: 1,
	}))
	send(p.a, toB.Dest(p.b.Num(), qkey), "ping")
	wc := wait(p.b.RecvCQ())
	fmt.Printf("b got %s\n", p.bmem.Bytes()[uverbs.GRHSize:wc.ByteLen]) // ByteLen counts the header, too

	toA := must(p.pd.CreateAHFromWC(&wc, p.bmem.Bytes()[:uverbs.GRHSize], 1))
	send(p.b, toA.Dest(wc.SrcQP, qkey), "pong")
	wc = wait(p.a.RecvCQ())
	fmt.Printf("a got %s\n", p.amem.Bytes()[uverbs.GRHSize:wc.ByteLen])
	check(errors.Join(toB.Close(), toA.Close()))
	// Output:
	// b got ping
	// a got pong
}

// Two queue pairs take their receives from one queue: whoever gets a message uses the next.
func ExampleSRQ() {
	p := newDevice()
	defer p.close()
	srq := must(p.pd.CreateSRQ(&uverbs.SRQInitAttr{MaxWR: 8, MaxSGE: 1}))
	for i := range 2 {
		must(srq.PostRecv([]uverbs.RecvWR{{ID: uint64(i), SGL: []uverbs.SGE{p.bmem.SGE(64*i, 64)}}}))
	}
	for _, sender := range []*uverbs.QP{p.newQP(uverbs.QPTypeRC, nil), p.newQP(uverbs.QPTypeRC, nil)} {
		receiver := p.newQP(uverbs.QPTypeRC, srq)
		check(connect(sender, receiver))
		check(connect(receiver, sender))
		must(sender.PostSend([]uverbs.SendWR{{
			Opcode: uverbs.OpSend, Flags: uverbs.SendInline, Inline: [][]byte{[]byte("hello")},
		}}))
		wc := wait(receiver.RecvCQ()) // WC.QPNum says which pair it was, where they share a queue
		fmt.Printf("receive %d: %s\n", wc.ID, p.bmem.Bytes()[64*wc.ID:][:wc.ByteLen])
		for _, qp := range []*uverbs.QP{sender, receiver} {
			check(errors.Join(qp.Close(), qp.SendCQ().Close()))
		}
	}
	check(srq.Close())
	// Output:
	// receive 0: hello
	// receive 1: hello
}

// A memory window opens 8 bytes of b's memory to a, and shuts them again. The region itself
// is closed to a.
func ExampleMW() {
	p := newPair()
	defer p.close()
	region := must(p.pd.AllocMR(4096, uverbs.AccessLocalWrite|uverbs.AccessMWBind))
	window := must(p.pd.AllocMW(uverbs.MWType1))
	write := func() uverbs.WCStatus { // by a, with the key that b told it
		must(p.a.PostSend([]uverbs.SendWR{{
			Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled | uverbs.SendInline, Inline: [][]byte{[]byte("welcome!")},
			RemoteAddr: region.Addr() + 16, RKey: window.RKey(),
		}}))
		return next(p.a.SendCQ()).Status
	}

	check(window.Bind(p.b, 1, uverbs.SendSignaled, region, 16, 8, uverbs.AccessRemoteWrite))
	wait(p.b.SendCQ())
	fmt.Println("open:", write() == uverbs.WCSuccess)

	check(window.Bind(p.b, 2, uverbs.SendSignaled, nil, 0, 0, 0))
	wait(p.b.SendCQ())
	fmt.Println("shut:", write() == uverbs.WCRemoteAccessError)
	check(errors.Join(window.Close(), region.Close()))
	// Output:
	// open: true
	// shut: true
}

// For a window of type 2 the program chooses the key, and gives it up by invalidating it.
func ExampleMW_Prepare() {
	p := newPair()
	defer p.close()
	region := must(p.pd.AllocMR(4096, uverbs.AccessLocalWrite|uverbs.AccessMWBind))
	window := must(p.pd.AllocMW(uverbs.MWType2))

	key := uverbs.IncRKey(window.RKey())
	bind := must(window.Prepare(region, 0, 8, key, uverbs.AccessRemoteRead))
	must(p.b.PostSend([]uverbs.SendWR{
		{ID: 1, Opcode: uverbs.OpBindMW, Bind: &bind},
		{ID: 2, Opcode: uverbs.OpLocalInvalidate, Flags: uverbs.SendSignaled | uverbs.SendFence, InvKey: key},
	}))
	fmt.Println("request", wait(p.b.SendCQ()).ID, "done")
	check(errors.Join(window.Close(), region.Close()))
	// Output:
	// request 2 done
}

// Atomic operations on 8 bytes of the peer's memory. The old value comes back.
func ExampleQP_PostSend_atomics() {
	p := newPair()
	defer p.close()
	counter := p.bmem.Bytes()[:8]
	binary.NativeEndian.PutUint64(counter, 37)
	atomic := func(wr uverbs.SendWR) uint64 {
		wr.Flags, wr.SGL = uverbs.SendSignaled, []uverbs.SGE{p.amem.SGE(0, 8)} // the old value goes here
		wr.RemoteAddr, wr.RKey = p.bmem.Addr(), p.bmem.RKey()                  // a multiple of 8
		must(p.a.PostSend([]uverbs.SendWR{wr}))
		wait(p.a.SendCQ())
		return binary.NativeEndian.Uint64(p.amem.Bytes())
	}

	fmt.Println("was", atomic(uverbs.SendWR{Opcode: uverbs.OpFetchAdd, CompareAdd: 5}))
	fmt.Println("was", atomic(uverbs.SendWR{Opcode: uverbs.OpCompareSwap, CompareAdd: 42, Swap: 7}))
	fmt.Println("is", binary.NativeEndian.Uint64(counter))
	// Output:
	// was 37
	// was 42
	// is 7
}

package siw

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/internal/provider"
)

// TestCompletions: all opcodes and statuses, and those that do not exist.
func TestCompletions(t *testing.T) {
	const unknown = 1 << 16
	opcodes := []provider.WCOpcode{
		provider.WCRDMAWrite, provider.WCRDMARead, provider.WCRDMARead, provider.WCSend, provider.WCSend, provider.WCSend,
		provider.WCFetchAdd, provider.WCCompareSwap, provider.WCRecv, unknown + 9, provider.WCLocalInv, unknown + 11,
		unknown + 12, unknown + 13,
	}
	opcodes = append(opcodes, unknown+14)
	for raw, want := range opcodes {
		length := uint32(77)
		if want == provider.WCLocalInv { // there the kernel leaves an older length
			length = 0
		}
		checkWC(t, fmt.Sprintf("opcode %d", raw), cqe{id: 1 << 63, flags: 1, opcode: uint8(raw), bytes: 77, qp: 17},
			provider.WC{ID: 1 << 63, Opcode: want, ByteLen: length, QPNum: 17})
	}
	checkWC(t, "opcode 255", cqe{flags: 1, opcode: 255}, provider.WC{Opcode: unknown + 255})

	statuses := []provider.WCStatus{
		provider.WCSuccess, provider.WCLocalLengthError, provider.WCLocalProtectionError, provider.WCLocalQPOperationError,
		provider.WCFlushError, provider.WCBadResponseError, provider.WCLocalAccessError, provider.WCRemoteAccessError,
		provider.WCRemoteInvalidRequest, provider.WCGeneralError,
	}
	for raw, want := range statuses {
		checkWC(t, fmt.Sprintf("status %d", raw), cqe{id: 5, flags: 1, opcode: 8, status: uint16(raw)},
			provider.WC{ID: 5, Opcode: provider.WCRecv, Status: want})
	}
	for _, raw := range []uint16{10, 255, 256, 0xffff} {
		checkWC(t, fmt.Sprintf("status %d", raw), cqe{flags: 1, opcode: 8, status: raw},
			provider.WC{Opcode: provider.WCRecv, Status: provider.WCGeneralError, VendorErr: uint32(raw)})
	}
	checkWC(t, "invalidated", cqe{flags: 33, opcode: 8, stag: 0x123456ab, qp: 0xffffffff},
		provider.WC{Opcode: provider.WCRecv, QPNum: 0xffffffff, Flags: provider.WCWithInv, InvKey: 0x123456ab})
	checkWC(t, "not invalidated", cqe{flags: 1, opcode: 8, stag: 0x123456ab}, provider.WC{Opcode: provider.WCRecv})
}

// checkWC reads one completion both ways, whole and lazily.
func checkWC(t *testing.T, name string, c cqe, want provider.WC) {
	t.Helper()
	q, mem := openCQ(t, 2)
	putCQE(mem, 0, c)
	putCQE(mem, 1, c)
	old := provider.WC{ID: 9, Status: 9, Opcode: 9, VendorErr: 9, ByteLen: 9, Imm: 9, QPNum: 9, SrcQP: 9, Flags: 9, InvKey: 9}
	wc := old
	if ok, failed, err := pollOne(q, &wc); !ok || failed != (want.Status != provider.WCSuccess) || err != nil {
		t.Fatalf("%s: got a completion %v, failed %v, %v", name, ok, failed, err)
	}
	if diff := cmp.Diff(want, wc); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
	if ok, err := q.Advance(); !ok || err != nil {
		t.Fatalf("%s: no second completion: %v", name, err)
	}
	if q.ID() != want.ID || q.Status() != want.Status {
		t.Errorf("%s: %d and %v, want %d and %v", name, q.ID(), q.Status(), want.ID, want.Status)
	}
	wc = old
	q.Decode(&wc)
	if diff := cmp.Diff(want, wc); diff != "" {
		t.Errorf("%s, second: %s", name, diff)
	}
}

// TestRelease: slots stay until Release, which clears the flags and nothing else.
func TestRelease(t *testing.T) {
	q, mem := openCQ(t, 4)
	for i := range 3 {
		putCQE(mem, i, cqe{id: uint64(i), flags: 33, opcode: 8, status: 0x0102, bytes: 4, stag: 5, qp: 6})
	}
	before := bytes.Clone(mem)
	if diff := cmp.Diff([]uint64{0, 1, 2}, ids(poll(t, q))); diff != "" {
		t.Error(diff)
	}
	if !bytes.Equal(before, mem) {
		t.Error("reading changed the queue")
	}
	q.Release()
	for i := range 3 {
		before[i*cqeSize+8] = 0
	}
	if diff := cmp.Diff(before, mem); diff != "" {
		t.Error(diff)
	}
	q.Release()
	putCQE(mem, 3, cqe{id: 3, flags: 1})
	putCQE(mem, 0, cqe{id: 4, flags: 1})
	if diff := cmp.Diff([]uint64{3, 4}, ids(poll(t, q))); diff != "" {
		t.Errorf("around the end: %s", diff)
	}
}

// TestAllHeld: a reader that gives nothing back does not come round to the same completions.
func TestAllHeld(t *testing.T) {
	for _, start := range []uint32{0, 3, 1<<32 - 2} {
		q, mem := openCQ(t, 4)
		q.own, q.given = start, start
		for i := range 4 {
			putCQE(mem, i, cqe{id: uint64(i), flags: 1, qp: 7})
		}
		if got := poll(t, q); len(got) != 4 {
			t.Errorf("start %d: %d completions, want 4", start, len(got))
		}
		q.Forget(7) // all are returned, none is left to forget
		q.Release()
		for i := range 4 {
			if mem[i*cqeSize+8] != 0 || ne.Uint64(mem[i*cqeSize+24:]) != 7 {
				t.Errorf("start %d: slot %d holds % x", start, i, mem[i*cqeSize:][:cqeSize])
			}
		}
		if got := poll(t, q); len(got) != 0 {
			t.Errorf("start %d: %d completions came again", start, len(got))
		}
	}
}

// TestStrangeFlags: flags without VALID are nothing that a kernel writes, and the kernel
// would wait for such a slot for ever.
func TestStrangeFlags(t *testing.T) {
	q, mem := openCQ(t, 4)
	putCQE(mem, 0, cqe{flags: 1})
	putCQE(mem, 1, cqe{flags: 2})
	if ok, err := q.Advance(); !ok || err != nil {
		t.Errorf("got %v, %v, want the good completion", ok, err)
	}
	if ok, err := q.Advance(); ok || !errors.Is(err, provider.ErrCorrupt) {
		t.Errorf("got %v, %v, want ErrCorrupt", ok, err)
	}
	q, mem = openCQ(t, 4)
	putCQE(mem, 0, cqe{flags: 1})
	putCQE(mem, 1, cqe{flags: 2})
	if n, _, err := q.Poll(make([]provider.WC, 4)); n != 1 || !errors.Is(err, provider.ErrCorrupt) {
		t.Errorf("polled %d, %v, want 1 and ErrCorrupt", n, err)
	}
	if q.Empty() {
		t.Error("the queue counts as empty")
	}
}

// TestRW44Forget: completions of a dead queue pair are skipped, all others stay in order.
func TestRW44Forget(t *testing.T) {
	q, mem := openCQ(t, 8)
	q.own, q.given = 5, 5
	for i := range 6 {
		putCQE(mem, (5+i)%8, cqe{id: uint64(i), flags: 1, status: 4, opcode: 3, qp: uint64(20 + i%2)})
	}
	var wc provider.WC
	if ok, err := next(q, &wc); !ok || err != nil { // of 20, returned before its queue pair dies
		t.Fatal(ok, err)
	}
	q.Forget(20)
	if diff := cmp.Diff([]uint64{1, 3, 5}, ids(poll(t, q))); diff != "" {
		t.Error(diff)
	}
	// The kernel looks statuses and opcodes up when it destroys the queue.
	for i := range 6 {
		e := mem[(5+i)%8*cqeSize:]
		if e[8] != 1 || e[9] != 3 || ne.Uint16(e[10:]) != 4 {
			t.Errorf("completion %d: flags, opcode or status changed", i)
		}
	}
	q.Release()
	for i := range 8 {
		if mem[i*cqeSize+8] != 0 {
			t.Errorf("slot %d was not given back", i)
		}
	}
	// A new queue pair of the number is a new one.
	putCQE(mem, (5+6)%8, cqe{id: 9, flags: 1, qp: 20})
	if diff := cmp.Diff([]uint64{9}, ids(poll(t, q))); diff != "" {
		t.Error(diff)
	}
}

// TestForgottenGoBack: slots of forgotten completions go back when they are passed, since
// who finds no completion has nothing to release; but never before one that is still held.
func TestForgottenGoBack(t *testing.T) {
	q, mem := openCQ(t, 4)
	for i, num := range []uint64{20, 20, 21, 20} {
		putCQE(mem, i, cqe{id: uint64(i), flags: 1, qp: num})
	}
	q.Forget(20)
	var wc provider.WC
	if ok, err := next(q, &wc); !ok || err != nil || wc.ID != 2 {
		t.Fatalf("got %v, %v, completion %d, want 2", ok, err, wc.ID)
	}
	if ok, err := next(q, &wc); ok || err != nil {
		t.Fatalf("got %v, %v, completion %d, want none", ok, err, wc.ID)
	}
	held := []byte{mem[8], mem[cqeSize+8], mem[2*cqeSize+8], mem[3*cqeSize+8]}
	if diff := cmp.Diff([]byte{0, 0, 1, 1}, held); diff != "" {
		t.Error(diff)
	}
	// The kernel uses the slots that it got back; releasing does not take them from it.
	putCQE(mem, 0, cqe{id: 4, flags: 1, qp: 21})
	putCQE(mem, 1, cqe{id: 5, flags: 1, qp: 21})
	q.Release()
	if diff := cmp.Diff([]uint64{4, 5}, ids(poll(t, q))); diff != "" {
		t.Error(diff)
	}
}

// TestPoll: what was passed goes back, the forgotten among it and what was read before, and no
// more.
func TestPoll(t *testing.T) {
	q, mem := openCQ(t, 8)
	q.own, q.given = 5, 5
	for i := range 6 {
		putCQE(mem, (5+i)%8, cqe{id: uint64(i), flags: 1, status: 4, qp: uint64(20 + i%2)})
	}
	q.Forget(20)
	if ok, err := q.Advance(); !ok || err != nil || q.ID() != 1 {
		t.Fatalf("got %v, %v, completion %d, want 1", ok, err, q.ID())
	}
	for _, want := range []struct {
		room, n int
		id      uint64
		held    []byte
	}{
		{1, 1, 3, []byte{0, 0, 0, 0, 1, 1}}, {3, 1, 5, make([]byte, 6)}, {3, 0, 0, make([]byte, 6)},
	} {
		wcs := make([]provider.WC, 3)
		n, failed, err := q.Poll(wcs[:want.room])
		if n != want.n || failed != (n > 0) || err != nil || wcs[0].ID != want.id {
			t.Errorf("polled %d, %v, %v, completion %d; want %d, completion %d", n, failed, err, wcs[0].ID, want.n, want.id)
		}
		var held []byte
		for i := range 6 {
			held = append(held, mem[(5+i)%8*cqeSize+8])
		}
		if diff := cmp.Diff(want.held, held); diff != "" {
			t.Errorf("after completion %d: %s", want.id, diff)
		}
	}
	if !q.Empty() {
		t.Error("the queue is not empty")
	}
}

// TestForgetEnds: what lies behind the last completion is not touched.
func TestForgetEnds(t *testing.T) {
	q, mem := openCQ(t, 4)
	putCQE(mem, 0, cqe{flags: 1, qp: 20})
	putCQE(mem, 1, cqe{qp: 20})
	putCQE(mem, 2, cqe{flags: 1, qp: 20})
	before := bytes.Clone(mem[cqeSize:])
	q.Forget(20)
	if !bytes.Equal(before, mem[cqeSize:]) {
		t.Error("a slot that is the kernel's was written")
	}
}

// TestArm: the request stands behind the last completion. The kernel clears it, so it is
// written anew each time; and it asks for any completion, because the kernel's receives
// never count as solicited.
func TestArm(t *testing.T) {
	for _, only := range []bool{false, true} {
		q, mem := openCQ(t, 4)
		want := append(make([]byte, 4*cqeSize), ne.AppendUint32(nil, 3)...)
		want = append(want, 0, 0, 0, 0)
		for range 2 {
			q.Arm(only)
			if diff := cmp.Diff(want, mem); diff != "" {
				t.Errorf("solicited only %v: %s", only, diff)
			}
			ne.PutUint32(mem[4*cqeSize:], 0)
		}
	}
}

// FuzzCQ: whatever a queue holds, reading it neither panics nor goes on for ever.
func FuzzCQ(f *testing.F) {
	good := make([]byte, 4*cqeSize)
	for i := range 3 {
		putCQE(good, i, cqe{id: uint64(i), flags: 1, opcode: 8, qp: uint64(20 + i%2)})
	}
	odd := make([]byte, 2*cqeSize)
	putCQE(odd, 0, cqe{id: 1, flags: 33, opcode: 200, status: 0xffff, qp: dead})
	putCQE(odd, 1, cqe{id: 1, flags: 0x80})
	f.Add(good, uint32(20), uint32(0), true)
	f.Add(good, uint32(21), uint32(1<<32-1), false)
	f.Add(odd, uint32(0), uint32(7), true)
	f.Add(bytes.Repeat([]byte{0xff}, 8*cqeSize), uint32(1<<32-1), uint32(3), false)
	f.Add([]byte{1}, uint32(0), uint32(0), false)
	f.Fuzz(func(t *testing.T, slots []byte, qpNum, start uint32, release bool) {
		n := 1
		for n*cqeSize < len(slots) && n < 1<<10 {
			n *= 2
		}
		q, mem := openCQ(t, uint32(n))
		copy(mem[:n*cqeSize], slots)
		q.own, q.given = start, start
		var wc provider.WC
		read := 0
		for {
			var ok bool
			var err error
			if release {
				ok, _, err = pollOne(q, &wc)
			} else {
				ok, err = next(q, &wc)
			}
			if !ok || err != nil {
				break
			}
			if read++; read == 1 {
				q.Forget(qpNum)
			} else if wc.QPNum == qpNum && uint64(qpNum) == ne.Uint64(mem[int(q.own-1)%n*cqeSize+24:]) {
				t.Fatalf("completion of the forgotten queue pair %d", qpNum)
			}
			_, _ = wc.Status.String(), wc.Opcode.String()
		}
		if read > n {
			t.Fatalf("%d completions from %d slots", read, n)
		}
		q.Arm(release)
		q.Release()
		if ok, _ := next(q, &wc); ok {
			t.Fatal("a completion came after the last")
		}
	})
}

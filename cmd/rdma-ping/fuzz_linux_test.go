package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// FuzzGreeting: whatever private data a server answers with, what the client agrees to is
// within what it asked for.
func FuzzGreeting(f *testing.F) {
	good := hello{kind: kindAccept, size: 56, window: maxWindow, idle: 60000}
	f.Add(good.marshal(), 56, false)
	f.Add(append(good.marshal(), make([]byte, 172)...), 56, false)
	f.Add(make([]byte, 196), 0, true)
	f.Add((&hello{kind: kindAccept, size: 1<<32 - 1, window: 1<<16 - 1}).marshal(), 4096, false)
	f.Add((&hello{kind: kindAccept, size: 56}).marshal(), 56, false)
	f.Add([]byte("something else"), 1, false)
	f.Fuzz(func(t *testing.T, private []byte, size int, rping bool) {
		if size < 0 || size > maxData {
			return
		}
		o := defaultPingOptions()
		o.size, o.rping = size, rping
		p := &pinging{opts: &o}
		if err := p.greeted(private); err != nil {
			if err.Error() == "" || p.answer != (hello{}) {
				t.Errorf("refused with %q, but %+v is agreed", err, p.answer)
			}
			return
		}
		h := p.answer
		switch {
		case h == hello{}: // rping, which needs something to echo
			if size == 0 || !rping && !isRping(private) {
				t.Errorf("%x counts as rping, with %d bytes", private, size)
			}
		case h.version != helloVersion || h.kind != kindAccept || int(h.size) != size || h.window == 0 || h.window > maxWindow ||
			h.idle != 0 && h.idleTime() <= o.interval:
			t.Errorf("agreed to %+v for %d bytes every %v", h, size, o.interval)
		}
	})
}

// What a script of FuzzAnswers does, besides sending request n (n < answerSlot).
const (
	answerSlot  = 16 // the contents of a slot, changed at one place
	answerBytes = 32 // any bytes
)

// FuzzAnswers gives a client any messages as answers to its requests. One counts only if it
// is what was sent, and once.
func FuzzAnswers(f *testing.F) {
	const size = 24
	k := fakekernel.New(fakekernel.Options{})
	f.Cleanup(k.Close)
	l := testLink(f, k, 2*maxWindow, headerLen+size)
	f.Add([]byte{0, 1, answerSlot + 1, 0, 0, answerSlot, 0, 0, answerSlot, 0, 0})
	f.Add([]byte{3, answerSlot + 3, 20, 1, answerSlot + 3, 8, 4, 2, answerSlot + 2, 4, 1})
	f.Add(append([]byte{0, answerBytes, 16}, "PING\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04"...))
	f.Add([]byte{answerSlot, 0, 0, answerBytes, 0, answerBytes, 15, 1, 2})
	f.Fuzz(func(t *testing.T, script []byte) {
		c := newEchoClient(t.Context(), l, size, maxWindow, time.Second)
		open := map[uint64][]byte{} // requests without an answer
		seq := uint64(maxWindow)
		for len(script) > 0 {
			op := script[0]
			script = script[1:]
			if op < answerSlot {
				slot := int(seq % maxWindow)
				delete(open, c.requests[slot].seq)
				b := c.slots.bytes(slot, headerLen+size)
				fillMessage(b, seq)
				c.requests[slot] = request{seq: seq, awaiting: true}
				open[seq] = bytes.Clone(b)
				seq++
				continue
			}
			var b []byte
			b, script = anAnswer(c, op, script)
			got, err := c.answer(b)
			if err == nil {
				if !bytes.Equal(b, open[got]) {
					t.Errorf("%x counts as the answer to %x", b, open[got])
				}
				delete(open, got)
			} else if !errors.As(err, new(*corruptError)) {
				t.Errorf("error %v is about more than this answer", err)
			}
			if seq, bad := checkMessage(b, size); err != nil && bad == nil { // a wrong answer was one all the same
				delete(open, seq)
			}
		}
	})
}

// anAnswer makes an answer of the script.
func anAnswer(c *echoClient, op byte, script []byte) (b, rest []byte) {
	if op >= answerBytes {
		n := 0
		if len(script) > 0 {
			n = min(int(script[0])%(c.frame+1), len(script)-1)
			script = script[1:]
		}
		return slices.Clone(script[:n]), script[n:]
	}
	b = bytes.Clone(c.slots.bytes(int(op)%maxWindow, c.frame))
	if len(script) >= 2 {
		b[int(script[0])%len(b)] ^= script[1]
		script = script[2:]
	}
	return b, script
}

// testLink is a link with memory and without a connection.
func testLink(f *testing.F, k *fakekernel.Kernel, n, frame int) *link {
	f.Helper()
	devs, err := uverbs.Devices(uverbs.WithSystem(k.System()))
	if err != nil || len(devs) == 0 {
		f.Fatalf("%d devices, %v", len(devs), err)
	}
	ctx, err := devs[0].Open()
	if err != nil {
		f.Fatal(err)
	}
	pd, err := ctx.AllocPD()
	if err != nil {
		f.Fatal(err)
	}
	l := &link{ownPD: true}
	if err := l.allocate(pd, n, frame); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := errors.Join(l.free(), ctx.Close()); err != nil {
			f.Error(err)
		}
	})
	return l
}

const (
	maxFrames = 4   // as many as the server has receives at least
	maxFrame  = 256 // longer than what the server receives into, so that some are too long
)

// FuzzServe has a client send the server any hello and any messages. The server echoes what
// it was sent, or drops the client; the next client is served as if nothing had been.
func FuzzServe(f *testing.F) {
	ask := hello{kind: kindRequest, size: 8, window: 2}
	msg := make([]byte, headerLen+8)
	fillMessage(msg, 1)
	f.Add(ask.marshal(), slices.Concat([]byte{byte(len(msg))}, msg, []byte{byte(len(msg))}, msg))
	f.Add(ask.marshal(), slices.Concat([]byte{byte(len(msg))}, msg[:20], []byte{1, 2, 3, 4, 0, 200}))
	f.Add((&hello{kind: kindRequest, size: 1 << 31, window: 1}).marshal(), []byte{})
	f.Add((&hello{kind: kindAccept, size: 1, window: 1}).marshal(), []byte{0})
	f.Add((&hello{kind: kindRequest, size: 8}).marshal(), []byte{0})
	f.Add((&hello{kind: kindRequest, size: 8, window: 1<<16 - 1}).marshal(), []byte{0})
	f.Add([]byte("RPNG"), []byte{1, 1})
	info := new([rpingInfoLen]byte)
	(&rpingInfo{addr: 4096, rkey: 1, size: 64}).marshal(info)
	f.Add([]byte{}, slices.Concat([]byte{rpingInfoLen}, info[:], []byte{rpingInfoLen}, info[:]))
	f.Add(make([]byte, 56), []byte{15, 1, 2, 3})
	f.Fuzz(func(t *testing.T, private, frames []byte) {
		dog := time.AfterFunc(30*time.Second, func() { panic("the run does not end") })
		defer dog.Stop()
		k := newKernel(t, fakekernel.Options{})
		serve(t, k, "-q=false", "--max-size", "4k")
		padded := make([]byte, maxPrivate) // as it arrives
		copy(padded, private)
		rawClient(t, k, padded, frames)
		if status, out, errs := ping(t, k, "-c", "1", serverAddr); status != statusOK || errs != "" {
			t.Errorf("the next client: status %d, stderr %q, stdout:\n%s", status, errs, out)
		}
	})
}

// rawClient sends frames, each after a byte with its length, and reads the answers.
func rawClient(t *testing.T, k *fakekernel.Kernel, private, frames []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	l := new(link)
	conn, err := rdmacm.Dial(ctx, serverAddr+":7174", &rdmacm.Options{
		System: []rdmacm.Option{rdmacm.WithSystem(k.System())}, QP: queueSizes(), ConnParam: rdmacm.ConnParam{PrivateData: private},
		Prepare: func(c *rdmacm.Conn) error {
			return errors.Join(l.allocate(c.PD(), 2*maxFrames, maxFrame), l.attach(c, maxFrames, maxFrames, false))
		},
	})
	if err != nil {
		if !errors.As(err, new(*rdmacm.RejectedError)) {
			t.Errorf("dial: %v, want success or a rejection", err)
		}
		if err := l.close(); err != nil {
			t.Error(err)
		}
		return
	}
	rping := isRping(private)
	if asked, _ := parseHello(private); !rping {
		granted, err := parseHello(conn.PrivateData())
		if err != nil || granted.kind != kindAccept || granted.size != asked.size || granted.window == 0 ||
			granted.window > min(asked.window, maxWindow) {
			t.Errorf("%+v was granted %+v, %v", asked, granted, err)
		}
	}
	var sent [][]byte
	for i := 0; i < maxFrames && len(frames) > 0; i++ {
		n := min(int(frames[0]), maxFrame, len(frames)-1)
		sent = append(sent, frames[1:1+n])
		copy(l.slots.bytes(i, n), frames[1:])
		if err := l.postSend(i, n); err != nil {
			t.Error(err)
		}
		frames = frames[1+n:]
	}
	wait, stop := follow(ctx, conn)
	defer stop()
	for answers := 0; answers < len(sent); {
		quiet, cancel := context.WithTimeout(wait, 20*time.Millisecond)
		wcs, _, err := l.recv.wait(quiet)
		cancel()
		if err != nil {
			break
		}
		for i := range wcs {
			if answers++; wcs[i].Status != uverbs.WCSuccess {
				answers = len(sent)
				break
			}
			got := l.slots.bytes(int(wcs[i].ID), int(wcs[i].ByteLen))
			if !rping && !slices.ContainsFunc(sent, func(b []byte) bool { return bytes.Equal(b, got) }) {
				t.Errorf("the server answers %x, which nobody sent", got)
			}
		}
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
}

//go:build linux

package main

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
)

// pause between two answers of an odd server.
const pause = -1

// oddServer answers one client of our own protocol as a test wants it: answer is called
// with each request, may change it, and returns those to send now, by slot, or pause.
func oddServer(t *testing.T, k *fakekernel.Kernel, answer func(seq uint64, slot int, msg []byte) []int) {
	t.Helper()
	oneSession(t, k, func(ctx context.Context, ln *rdmacm.Listener) error { return oddSession(ctx, ln, answer) })
}

// oneSession listens, for a server that a test leads by hand.
func oneSession(t *testing.T, k *fakekernel.Kernel, session func(context.Context, *rdmacm.Listener) error) {
	t.Helper()
	opts := []rdmacm.Option{rdmacm.WithSystem(k.System())}
	ln, err := rdmacm.Listen(t.Context(), serverAddr+":7174", &rdmacm.Options{System: opts})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- session(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("server: %v", err)
		}
		if err := ln.Close(); err != nil {
			t.Errorf("server: %v", err)
		}
	})
}

// accepted is the first client.
func accepted(ctx context.Context, ln *rdmacm.Listener) (*session, error) {
	req, err := ln.Next(ctx)
	if err != nil {
		return nil, err
	}
	o := defaultServeOptions()
	s := &session{opts: &o, req: req}
	for _, step := range []func() error{s.greet, s.admit, func() error { return s.accept(ctx) }} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func oddSession(ctx context.Context, ln *rdmacm.Listener, answer func(uint64, int, []byte) []int) error {
	s, err := accepted(ctx, ln)
	if err != nil {
		return err
	}
	ctx, cancel := follow(ctx, s.link.conn)
	defer cancel()
	for {
		wcs, _, err := s.link.recv.wait(ctx)
		if err != nil {
			return s.link.close()
		}
		for i := range wcs {
			if wcs[i].Status != 0 {
				return s.link.close()
			}
			slot := int(wcs[i].ID)
			msg := s.link.slots.bytes(slot, int(wcs[i].ByteLen))
			seq, err := checkMessage(msg, int(s.reply.size))
			if err != nil {
				return err
			}
			for _, slot := range answer(seq, slot, msg) {
				if slot == pause {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				if err := s.link.postSend(slot, len(msg)); err != nil {
					return err
				}
				if _, _, err := s.link.send.wait(ctx); err == nil {
					s.link.postRecv(slot)
				}
			}
		}
	}
}

// TestRW16LateAnswers holds back the first answer until the second request: it counts as
// lost, and is not taken for the answer to the second.
func TestRW16LateAnswers(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	held := -1
	oddServer(t, k, func(seq uint64, slot int, _ []byte) []int {
		switch seq {
		case 1:
			held = slot
			return nil
		case 2:
			return []int{held, pause, slot}
		}
		return []int{slot}
	})
	status, out, errs := ping(t, k, "-W", "300ms", "-i", "0", "-c", "4", serverAddr)
	if status != statusLost || errs != "" {
		t.Errorf("status %d, stderr %q", status, errs)
	}
	mustMatch(t, "stdout", out, `PING .*\nno answer from 10\.9\.0\.1: seq=1 \(waited 300ms\)\n`+
		`56 bytes from 10\.9\.0\.1: seq=2 time=[0-9]{5}\.\d us\n`+ // not that of the late one
		`.*seq=3.*seq=4.*4 sent, 3 received, 1 lost \(25\.0%\).*`)
}

// TestWrongContents has an answer changed on its way.
func TestWrongContents(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	oddServer(t, k, func(seq uint64, slot int, msg []byte) []int {
		if seq == 2 {
			msg[len(msg)-1] ^= 1
		}
		return []int{slot}
	})
	status, out, errs := ping(t, k, "-i", "0", "-c", "3", serverAddr)
	if status != statusLost || errs != "" {
		t.Errorf("status %d, stderr %q", status, errs)
	}
	mustMatch(t, "stdout", out, `.*seq=1 time.*seq=2 \(wrong contents: answer to request 2: byte 71 is .*seq=3 time.*`+
		`3 sent, 2 received, 1 lost .*\n1 of the lost were answered with wrong contents\n.*`)
}

// TestWrongEcho is the same for rping's protocol.
func TestWrongEcho(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	oneSession(t, k, func(ctx context.Context, ln *rdmacm.Listener) error {
		s, err := accepted(ctx, ln)
		if err != nil {
			return err
		}
		r := newRpingServer(ctx, &s.link, rpingMax, time.Minute)
		source, err := r.offer(ctx)
		if err == nil {
			err = errors.Join(r.fit(56), r.read(ctx, &source), r.sendInfo(&rpingInfo{}))
		}
		if err != nil {
			return err
		}
		r.text.Bytes()[20] ^= 1
		sink, err := r.offer(ctx)
		if err != nil {
			return err
		}
		if err := r.write(&sink, 56); err != nil {
			return err
		}
		<-s.link.conn.Done()
		return s.link.close()
	})
	status, out, errs := ping(t, k, "--rping", "-c", "1", serverAddr)
	if status != statusLost || errs != "" || !strings.Contains(out, "wrong contents: echo of request 1: byte 20 is") {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, errs, out)
	}
}

// TestRpingGrows offers more and more on one connection: the server keeps one text only.
func TestRpingGrows(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	serve(t, k)
	o := defaultPingOptions()
	o.rping = true
	p, err := dialled(t.Context(), k, &o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.link.close()
	for i, size := range []int{100, 50, 5000, 50000} {
		c, err := newRpingClient(t.Context(), &p.link, size, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ping(uint64(i + 1)); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		p.link.release(c.source)
		p.link.release(c.sink)
	}
	if got, want := k.Counts().MRs, 3; got != want {
		t.Errorf("%d regions, want %d: the messages of both sides and the server's text", got, want)
	}
}

// TestNoAnswers has a server that never answers: the client does not send beyond its window.
func TestNoAnswers(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	requests := 0
	oddServer(t, k, func(uint64, int, []byte) []int {
		requests++
		return nil
	})
	status, out, errs := ping(t, k, "-W", "30ms", "-i", "0", "-c", "6", serverAddr)
	if status != statusLost || errs != "" {
		t.Errorf("status %d, stderr %q", status, errs)
	}
	mustMatch(t, "stdout", out, `PING .*\n(no answer from \S+ seq=[1-4] \(waited 30ms\)\n){4}`+
		`(no answer from \S+ seq=[56] \(earlier requests are still without an answer\)\n){2}`+
		`\n--- .* ---\n6 sent, 0 received, 6 lost \(100\.0%\), time \S+ s\n`)
	if requests != maxWindow {
		t.Errorf("server saw %d requests, want %d", requests, maxWindow)
	}
}

// TestServerRefuses checks that each refusal arrives as a reason.
func TestServerRefuses(t *testing.T) {
	tight := newKernel(t, fakekernel.Options{Memlock: 256 << 10})
	serve(t, tight)
	status, _, errs := ping(t, tight, "-s", "40k", serverAddr) // 4 slots here, 3 there
	if status != statusError || !strings.Contains(errs, "cannot register memory") {
		t.Errorf("no memory: status %d, stderr %q", status, errs)
	}

	k := newKernel(t, fakekernel.Options{})
	s := serve(t, k, "--max-clients", "1")
	c := start(t, k, "-i", "30s", serverAddr)
	c.out.await(t, "seq=1")
	status, _, errs = ping(t, k, serverAddr)
	if status != statusError || !strings.Contains(errs, "serves as many clients as it may") {
		t.Errorf("busy: status %d, stderr %q", status, errs)
	}
	if status := c.stop(); status != statusOK {
		t.Errorf("first client: status %d", status)
	}
	s.out.await(t, "left: 1 answered, 56 bytes")

	small := newKernel(t, fakekernel.Options{})
	serve(t, small, "--max-size", "4k")
	status, _, errs = ping(t, small, "-s", "4097", serverAddr)
	if status != statusError || !strings.Contains(errs, "at most 4 KiB; ask for less with -s") {
		t.Errorf("too large: status %d, stderr %q", status, errs)
	}
	if status, _, errs = ping(t, small, "-s", "4096", "-c", "1", serverAddr); status != statusOK {
		t.Errorf("just right: status %d, stderr %q", status, errs)
	}
}

// TestForeignServer dials servers that are no rdma-ping.
func TestForeignServer(t *testing.T) {
	for private, want := range map[string]string{
		"something else": "neither rdma-ping serve nor rping",
		string((&hello{kind: kindAccept, size: 57, window: 4}).marshal()): "makes no sense",
		string((&hello{kind: kindAccept, size: 56, window: 9}).marshal()): "makes no sense",
		string((&hello{kind: kindAccept, size: 56}).marshal()):            "makes no sense",
	} {
		k := newKernel(t, fakekernel.Options{})
		ctx, cancel := context.WithCancel(context.Background())
		ln, err := rdmacm.Listen(ctx, serverAddr+":7174", &rdmacm.Options{
			System:    []rdmacm.Option{rdmacm.WithSystem(k.System())},
			ConnParam: rdmacm.ConnParam{PrivateData: []byte(private)},
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer cancel()
			if conn, err := ln.Accept(ctx); err == nil {
				<-conn.Done()
				conn.Close()
			}
		}()
		status, _, errs := ping(t, k, serverAddr)
		if status != statusError || !strings.Contains(errs, want) {
			t.Errorf("%q: status %d, stderr %q", private, status, errs)
		}
		<-ctx.Done()
		ln.Close()
	}
}

// dialled is a client that a test leads by hand.
func dialled(ctx context.Context, k *fakekernel.Kernel, o *pingOptions) (*pinging, error) {
	p := &pinging{opts: o, target: target{addr: netip.MustParseAddrPort(serverAddr + ":7174"), size: o.size}, stats: newStats()}
	return p, p.dial(ctx, netip.AddrPort{}, []rdmacm.Option{rdmacm.WithSystem(k.System())})
}

package main

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAddress(t *testing.T) {
	want := address{qpn: 0x11, psn: 0xabcdef, gid: [16]byte{0xfe, 0x80, 15: 1}}
	b := want.encode()
	if string(b) != "0000:000011:abcdef:fe800000000000000000000000000001\x00" {
		t.Errorf("encoded as %q", b)
	}
	if got, err := parseAddress(b); err != nil || got != want {
		t.Errorf("parsed as %+v, %v", got, err)
	}
	for _, bad := range []string{"", "0000:000011", "zzzz:zzzzzz:zzzzzz:fe800000000000000000000000000001\x00"} {
		if _, err := parseAddress([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestSlots: the number of slots is fixed, the number of queue pairs has to agree.
func TestSlots(t *testing.T) {
	me := []address{{qpn: 17, psn: 1}, {qpn: 18, psn: 2}}
	var wire bytes.Buffer
	here, there := net.Pipe()
	go func() {
		send(there, me, 256) //nolint:errcheck // what is missing shows at the receiver
		there.Close()
	}()
	if _, err := wire.ReadFrom(here); err != nil {
		t.Fatal(err)
	}
	if wire.Len() != 256*addressLen {
		t.Errorf("%d bytes were sent, want %d", wire.Len(), 256*addressLen)
	}
	got, err := receive(bytes.NewReader(wire.Bytes()), 2, 256)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(me, got, cmp.AllowUnexported(address{})); diff != "" {
		t.Errorf("other addresses came: %s", diff)
	}
	if _, err := receive(bytes.NewReader(wire.Bytes()), 3, 256); err == nil || !strings.Contains(err.Error(), "-q") {
		t.Errorf("2 queue pairs for 3: %v, want an error that names -q", err)
	}
	if _, err := receive(bytes.NewReader(wire.Bytes()[:1000]), 2, 256); err == nil {
		t.Error("a peer that hangs up is no error")
	}
}

func TestOptions(t *testing.T) {
	for _, bad := range []options{
		{transport: "xrc", iters: 1, depth: 1},
		{transport: "rc", iters: 0, depth: 1},
		{transport: "rc", iters: 1, depth: 1, pairs: 2},
		{transport: "srq", iters: 1, depth: 500, pairs: 256},
		{transport: "srq", iters: 1, depth: 15},
		{transport: "rc", iters: 1, depth: 1, size: -1},
	} {
		if _, err := run(context.Background(), bad, nil); err == nil || strings.Contains(err.Error(), "device") {
			t.Errorf("%+v: %v, want a refusal", bad, err)
		}
	}
}

func TestNoDevice(t *testing.T) {
	o := options{transport: "rc", iters: 1, depth: 1, device: "missing"}
	if _, err := run(context.Background(), o, nil); err == nil {
		t.Error("a device that is not there was opened")
	}
}

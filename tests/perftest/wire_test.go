package main

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/uverbs"
)

// recorded is a message of ib_read_lat 6.06.
const recorded = "0000:0080:000016:4289ea:000007fe:000055e0018f5000:00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00:01:00000000:\x00"

var parsed = dest{
	outReads: 0x80, qpn: 0x16, psn: 0x4289ea, rkey: 0x7fe, vaddr: 0x55e0018f5000,
	gid: uverbs.GID{10: 0xff, 0xff, 10, 9, 0, 1},
}

func TestDestText(t *testing.T) {
	got, err := parseText([]byte(recorded))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(parsed, got, cmp.AllowUnexported(dest{})); diff != "" {
		t.Errorf("parsed otherwise: %s", diff)
	}
	if s := string(parsed.text()); s != recorded {
		t.Errorf("encoded as %q, want %q", s, recorded)
	}
	for _, bad := range []string{
		"", recorded[:107], recorded + "0",
		strings.Replace(recorded, "0016:", "00g6:", 1),
		strings.Replace(recorded, "000016:4289ea", "1000016:289ea", 1), // 25 bits
		strings.Replace(recorded, ":00:00", "::0000", 1),
		strings.Replace(recorded, "0000:", "-001:", 1),
		strings.Replace(recorded, ":\x00", "\x00:", 1),
	} {
		if d, err := parseText([]byte(bad)); err == nil {
			t.Errorf("%q was taken for %+v", bad, d)
		}
	}
}

func TestDestBinary(t *testing.T) {
	b := parsed.binary()
	want := "\x00\x00\x00\x00\x00\x00\x00\x80\x00\x00\x00\x16\x00\x42\x89\xea\x00\x00\x07\xfe\x00\x00\x00\x00" +
		"\x00\x00\x55\xe0\x01\x8f\x50\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\x09\x00\x01" +
		"\x00\x00\x00\x00\x00\x00\x00\x00"
	if string(b) != want {
		t.Errorf("encoded as %q, want %q", b, want)
	}
	got, err := parseBinary(b)
	if err != nil || got != parsed {
		t.Errorf("parsed as %+v, %v", got, err)
	}
	if _, err := parseBinary(b[:55]); err == nil {
		t.Error("55 bytes were accepted")
	}
	b[8] = 1
	if _, err := parseBinary(b); err == nil {
		t.Error("a queue pair number of 25 bits was accepted")
	}
}

func TestDestCheck(t *testing.T) {
	own := uverbs.GID{10: 0xff, 0xff, 10, 9, 0, 2}
	for _, tt := range []struct {
		test   string
		change func(*dest)
		want   string // "" is success
	}{
		{"read", func(*dest) {}, ""},
		{"send", func(d *dest) { d.rkey, d.vaddr = 0, 0 }, ""},
		{"send", func(d *dest) { d.qpn = 0 }, "no queue pair"},
		{"read", func(d *dest) { d.rkey = 0 }, "another test"},
		{"write", func(d *dest) { d.vaddr = ^uint64(0) }, "where no"},
		{"atomic", func(d *dest) { d.vaddr++ }, "atomic"},
		{"read", func(d *dest) { d.outReads = 0 }, "serves no"},
		{"send", func(d *dest) { d.gid = uverbs.GID{0xfe, 0x80, 15: 1} }, "-x"},
	} {
		d := parsed
		tt.change(&d)
		err := d.check(tests[tt.test], options{test: tt.test, size: 8}, own)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %+v: %v, want %q", tt.test, d, err, tt.want)
		}
	}
}

func TestVersion(t *testing.T) {
	for s, ok := range map[string]bool{
		"6.06\x00\x00": true, "5.70\x00": true, "26.01\x00": true, "5.69\x00": false,
		"": false, "\x00": false, "NaN\x00": false, "6.06x\x00": false, "GET / HTTP/1.1": false,
	} {
		if err := checkVersion([]byte(s)); (err == nil) != ok {
			t.Errorf("version %q: %v", s, err)
		}
	}
}

func TestPathMTU(t *testing.T) {
	for s, want := range map[string]uverbs.MTU{"3\x00": uverbs.MTU1024, "5\x00": uverbs.MTU2048, "0\x00": 0, "6\x00": 0, "3 ": 0, "\xff\x00": 0} {
		got, err := pathMTU(uverbs.MTU2048, []byte(s))
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %v, %v, want %v", s, got, err, want)
		}
	}
}

func TestOptions(t *testing.T) {
	ok := options{test: "send", transport: "RC", iters: 5, port: 1, gidIndex: 1}
	if _, err := ok.complete(); err != nil || ok.size != 2 {
		t.Errorf("%+v: %v", ok, err)
	}
	for _, change := range []func(*options){
		func(o *options) { o.test = "bw" },
		func(o *options) { o.transport = "XRC" },
		func(o *options) { o.test, o.transport = "write", "UD" },
		func(o *options) { o.test, o.transport = "read", "UC" },
		func(o *options) { o.transport, o.cm = "UD", true },
		func(o *options) { o.test, o.atomic = "atomic", "XOR" },
		func(o *options) { o.test, o.atomic, o.size = "atomic", fetchAdd, 4 },
		func(o *options) { o.test, o.events = "write", true },
		func(o *options) { o.iters = 4 },
		func(o *options) { o.size = maxSize + 1 },
		func(o *options) { o.gidIndex = 256 },
	} {
		o := ok
		change(&o)
		if err := run(context.Background(), o, nil); err == nil || strings.Contains(err.Error(), "device") {
			t.Errorf("%+v: %v, want a refusal", o, err)
		}
	}
}

func TestNoDevice(t *testing.T) {
	o := options{test: "send", transport: "RC", iters: 5, port: 1, device: "missing"}
	if err := run(context.Background(), o, nil); err == nil {
		t.Error("a device that is not there was opened")
	}
}

// FuzzDest: whatever a peer sends, what is taken is what it would be sent back as.
func FuzzDest(f *testing.F) {
	f.Add([]byte(recorded))
	f.Add(parsed.binary())
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := parseText(b); err == nil {
			if again, err := parseText(d.text()); err != nil || again != d {
				t.Errorf("%q is %+v, then %+v, %v", b, d, again, err)
			}
		}
		if d, err := parseBinary(b); err == nil {
			if again, err := parseBinary(d.binary()); err != nil || again != d {
				t.Errorf("%q is %+v, then %+v, %v", b, d, again, err)
			}
		}
		checkVersion(b) //nolint:errcheck // it only must not panic
		if len(b) >= 2 {
			pathMTU(uverbs.MTU1024, b[:2]) //nolint:errcheck // the same
		}
	})
}

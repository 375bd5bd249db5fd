package main

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStats(t *testing.T) {
	s := newStats()
	if s.lossPercent() != 0 || s.stddev() != 0 || s.sent() != 0 {
		t.Errorf("empty: loss %v, deviation %v, sent %d, want 0", s.lossPercent(), s.stddev(), s.sent())
	}
	for _, us := range []int{2, 4, 4, 4, 5, 5, 7, 9} { // mean 5, standard deviation 2
		s.received(time.Duration(us) * time.Microsecond)
	}
	s.lost = 2
	if s.min != 2*time.Microsecond || s.max != 9*time.Microsecond || s.mean != 5000 || s.stddev() != 2*time.Microsecond {
		t.Errorf("min %v, max %v, mean %v ns, deviation %v, want 2µs, 9µs, 5000, 2µs", s.min, s.max, s.mean, s.stddev())
	}
	if s.sent() != 10 || s.lossPercent() != 20 {
		t.Errorf("sent %d, loss %v %%, want 10, 20", s.sent(), s.lossPercent())
	}
	near := func(p float64, want time.Duration) {
		t.Helper()
		if got := s.percentile(p); got < want || got > want+want/500 {
			t.Errorf("p%v = %v, want %v", p, got, want)
		}
	}
	near(50, 4*time.Microsecond)
	near(75, 5*time.Microsecond)
	near(99, 9*time.Microsecond)
}

func TestStatsExtremes(t *testing.T) {
	s := newStats()
	s.received(-time.Nanosecond) // a clock that steps must not break the histogram
	s.received(2 * longest)
	if s.count() != 2 || s.percentile(99) < longest-longest/500 {
		t.Errorf("%d received, p99 %v", s.count(), s.percentile(99))
	}
}

func TestStatus(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		received, lost uint64
		err            error
		want           int
	}{
		{5, 0, nil, statusOK},
		{0, 0, nil, statusOK}, // Ctrl-C before the first answer
		{4, 1, nil, statusLost},
		{0, 3, nil, statusLost},
		{3, 0, broken, statusLost}, // some requests were not made
		{0, 0, broken, statusError},
	} {
		s := newStats()
		s.n, s.lost = tt.received, tt.lost
		if got := s.status(tt.err); got != tt.want {
			t.Errorf("status of %d received, %d lost, %v = %d, want %d", tt.received, tt.lost, tt.err, got, tt.want)
		}
	}
}

// report plays a short run into a reporter.
func report(r reporter) {
	t := &target{
		name: "server", addr: netip.MustParseAddrPort("10.9.0.1:7174"), device: "rxe0", size: 56, protocol: "rdma-ping",
	}
	s := newStats()
	r.start(t)
	r.reply(t, 1, 123400*time.Nanosecond)
	r.lost(t, 2, "waited 5s")
	r.reply(t, 3, 100*time.Microsecond)
	s.received(123400 * time.Nanosecond)
	s.received(100 * time.Microsecond)
	s.lost, s.took = 1, 2010*time.Millisecond
	r.summary(t, s)
}

func TestTextOutput(t *testing.T) {
	const head = "PING server (10.9.0.1:7174) over rxe0: 56 bytes of data\n"
	const lines = "56 bytes from 10.9.0.1: seq=1 time=123.4 us\n" +
		"no answer from 10.9.0.1: seq=2 (waited 5s)\n" +
		"56 bytes from 10.9.0.1: seq=3 time=100.0 us\n"
	const tail = "\n--- server rdma-ping statistics ---\n" +
		"3 sent, 2 received, 1 lost (33.3%), time 2.01 s\n" +
		"rtt min/avg/max/stddev = 100.0/111.7/123.4/11.7 us\n" +
		"p50/p99 = 100.0/123.4 us\n"
	for quiet, want := range map[bool]string{false: head + lines + tail, true: head + tail} {
		var b bytes.Buffer
		report(newReporter(&b, &pingOptions{quiet: quiet}))
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("quiet %v (-want +got):\n%s", quiet, diff)
		}
	}
}

func TestJSONOutput(t *testing.T) {
	const want = `{"type":"start","target":"server","address":"10.9.0.1:7174","device":"rxe0","protocol":"rdma-ping","bytes":56}
{"type":"reply","target":"server","address":"10.9.0.1","bytes":56,"seq":1,"rtt_us":123.4}
{"type":"lost","target":"server","seq":2,"reason":"waited 5s"}
{"type":"reply","target":"server","address":"10.9.0.1","bytes":56,"seq":3,"rtt_us":100}
{"type":"summary","target":"server","sent":3,"received":2,"lost":1,"corrupt":0,"loss_percent":33.333333333333336,"time_s":2.01,"rtt_us":{"min":100,"avg":111.7,"max":123.4,"stddev":11.7,"p50":100.031,"p99":123.4}}
`
	var b bytes.Buffer
	report(newReporter(&b, &pingOptions{json: true}))
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

// TestTimestamps has both forms at a known time.
func TestTimestamps(t *testing.T) {
	now := func() time.Time { return time.Unix(1700000000, 23456789) }
	var b bytes.Buffer
	text := newReporter(&b, &pingOptions{stamps: true}).(*textReporter)
	text.now = now
	object := newReporter(&b, &pingOptions{stamps: true, json: true}).(*jsonReporter)
	object.now = now
	to := &target{name: "server", addr: netip.MustParseAddrPort("10.9.0.1:99"), portToo: true, size: 1}
	for _, r := range []reporter{text, object} {
		r.reply(to, 1, time.Microsecond)
		r.lost(to, 2, "waited 5s")
	}
	object.failed(to, "no way")
	const want = `[1700000000.023456] 1 byte from 10.9.0.1:99: seq=1 time=1.0 us
[1700000000.023456] no answer from 10.9.0.1:99: seq=2 (waited 5s)
{"type":"reply","target":"server","address":"10.9.0.1","bytes":1,"seq":1,"rtt_us":1,"timestamp_s":1700000000.023456}
{"type":"lost","target":"server","seq":2,"reason":"waited 5s","timestamp_s":1700000000.023456}
{"type":"failed","target":"server","reason":"no way"}
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProgress(t *testing.T) {
	s := newStats()
	if got := s.progress(); got != "0/0 packets, 0% loss" {
		t.Errorf("at the start: %s", got)
	}
	s.missed(false)
	s.missed(true)
	if got := s.progress(); got != "0/2 packets, 100% loss" || s.corrupt != 1 {
		t.Errorf("after losses, one of wrong contents: %s, %d", got, s.corrupt)
	}
	s.received(8 * time.Microsecond)
	s.received(16 * time.Microsecond) // ewma 8 + 8/8
	if got := s.progress(); got != "2/4 packets, 50% loss, min/avg/ewma/max = 8.0/12.0/9.0/16.0 us" {
		t.Errorf("after answers: %s", got)
	}
}

func BenchmarkReply(b *testing.B) {
	t := &target{name: "server", addr: netip.MustParseAddrPort("10.9.0.1:7174"), size: 56}
	var out bytes.Buffer
	r := newReporter(&out, &pingOptions{})
	b.ReportAllocs()
	for b.Loop() {
		out.Reset()
		r.reply(t, 1, time.Millisecond)
	}
}

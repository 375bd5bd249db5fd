//go:build linux

package main

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
)

// memlock sets the process's own limit on locked memory, which errors name, for a test.
func memlock(t *testing.T, bytes uint64) {
	t.Helper()
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old))
	limit := unix.Rlimit{Cur: bytes, Max: max(old.Max, bytes)}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Skipf("a limit above %d bytes takes root: %v", old.Max, err)
	}
	t.Cleanup(func() {
		limit.Cur = old.Cur
		must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit))
	})
}

// rw31Runs need more than 64 KiB, each in its way: one large message, many queue pairs, other
// operations and connections.
var rw31Runs = []string{
	"-s 1MiB", "-s 1MiB --poll", "--rping -s 1MiB", "-s 32k",
	"perf lat -s 1MiB", "perf bw -s 1MiB", "perf bw -o write -s 1MiB", "perf bw -o read -b -s 64k", "perf bw -s 64..1M",
	"perf bw -t uc -s 64k", "perf lat --qps 16 -s 8k", "perf bw --qps 9",
}

// TestRW31TooMuch: more than the limit fails with a text that names the limit and what was
// asked, in one line that does not speak of the connection. The peer sees no more than that a
// client left, nothing stays registered, and what fits goes on to work.
func TestRW31TooMuch(t *testing.T) {
	const limit = 64 << 10
	memlock(t, limit)
	k := newKernel(t, fakekernel.Options{Memlock: limit})
	s, p := serve(t, k, "--max-size", "2m"), perfServe(t, k)
	idle := k.Counts()
	quiet := func() string {
		now := k.Counts()
		now.Contexts, now.AsyncChannels = 0, 0 // servers may keep the device open
		return cmp.Diff(idle, now)
	}
	for i, line := range rw31Runs {
		// What was said of those before is said.
		eventually(t, func() string {
			if n, m := strings.Count(s.out.String(), "left: 2 answered"), strings.Count(p.out.String(), "left: latency"); n != i || m != i {
				return fmt.Sprintf("%d and %d clients left, want %d each", n, m, i)
			}
			return ""
		})
		pinged, measured := len(s.out.String()), len(p.out.String())
		status, out, errs := ping(t, k, append(strings.Fields(line), serverAddr)...)
		if status != statusError || out != "" {
			t.Errorf("%s: status %d, stdout %q", line, status, out)
		}
		mustMatch(t, line, errs, `rdma-ping: [^\n]*\d+ bytes asked; RLIMIT_MEMLOCK is 65536 bytes[^\n]*ulimit -l[^\n]*\n`)
		if regexp.MustCompile("reject|refuse|in use|timed out|4791").MatchString(errs) {
			t.Errorf("%s: a matter of memory is told as one of the connection: %s", line, errs)
		}
		eventually(t, quiet)
		eventually(t, func() string {
			saw, want := s.out.String()[pinged:]+p.out.String()[measured:], rw31Saw(line)
			if !regexp.MustCompile("^" + want + "$").MatchString(saw) {
				return fmt.Sprintf("%s: the server says %q, want %s", line, saw, want)
			}
			return ""
		})
		for _, small := range []string{"-c 2 -i 0", "perf lat -c 20"} {
			if status, out, errs := ping(t, k, append(strings.Fields(small), serverAddr)...); status != statusOK {
				t.Errorf("%s behind %s: status %d, stderr %q, stdout:\n%s", small, line, status, errs, out)
			}
		}
		eventually(t, quiet)
	}
}

// rw31Saw is what a server notices of a client that cannot register its memory: nothing if
// that comes first, and else one that came and left.
func rw31Saw(line string) string {
	switch {
	case strings.HasPrefix(line, "perf"):
		return `\S+ dropped: the peer closed the connection: 0 rounds, 0 messages came in \S+\n`
	case strings.Contains(line, "--rping"):
		return `\S+ connected: rping\n\S+ left: 0 answered, 0 bytes in \S+\n`
	}
	return ""
}

// TestRW31Server: it is the server that has too little. The client is told so, and is not told
// that it is a matter of the connection; the server's own output names its limit.
func TestRW31Server(t *testing.T) {
	memlock(t, 64<<10)
	for _, line := range []string{"-s 1k", "--rping -s 40", "perf bw -s 1k", "perf lat -t ud -s 1k"} {
		k := newKernel(t, fakekernel.Options{})
		s, p := serve(t, k), perfServe(t, k)
		// The client has registered its memory by then: of perf, that of the control
		// connections of both, and two regions; of ping, one.
		nth := map[bool]int32{true: 5, false: 2}[strings.HasPrefix(line, "perf")]
		cancel := k.Fail(fakekernel.Nth(nth, fakekernel.Command(abi.IB_USER_VERBS_CMD_REG_MR)), syscall.ENOMEM)
		status, out, errs := ping(t, k, append(strings.Fields(line), serverAddr)...)
		cancel()
		if status != statusError || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: status %d, stdout %q, stderr %q", line, status, out, errs)
		}
		if !strings.Contains(line, "rping") && !regexp.MustCompile("the server.* refused: it cannot .*register .*memory").MatchString(errs) {
			t.Errorf("%s: %q does not say what the server lacks", line, errs)
		}
		eventually(t, func() string {
			if said := s.out.String() + p.out.String(); !strings.Contains(said, "RLIMIT_MEMLOCK is 65536 bytes") {
				return fmt.Sprintf("%s: the server says %q", line, said)
			}
			return ""
		})
		if status, _, errs := ping(t, k, append(strings.Fields(line), "-c", "1", serverAddr)...); status != statusOK {
			t.Errorf("%s: afterwards: status %d, stderr %q", line, status, errs)
		}
	}
}

// TestRW31OtherShortage: where there is no limit, or something else is short, the limit is not
// blamed.
func TestRW31OtherShortage(t *testing.T) {
	memory := fakekernel.Command(abi.IB_USER_VERBS_CMD_REG_MR)
	others := map[string]func(fakekernel.Call) bool{
		"context":            fakekernel.Method(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_GET_CONTEXT),
		"protection domain":  fakekernel.Command(abi.IB_USER_VERBS_CMD_ALLOC_PD),
		"completion channel": fakekernel.Command(abi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL),
		"completion queue":   fakekernel.Method(abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE),
		"queue pair":         fakekernel.Method(abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_CREATE),
		"id":                 fakekernel.CMCommand(abi.RDMA_USER_CM_CMD_CREATE_ID),
		"connect":            fakekernel.CMCommand(abi.RDMA_USER_CM_CMD_CONNECT),
		"queue in memory":    fakekernel.Kind(fakekernel.CallMap),
	}
	shortage := func(t *testing.T, what string, match func(fakekernel.Call) bool) {
		k := newKernel(t, fakekernel.Options{})
		serve(t, k)
		perfServe(t, k)
		for _, line := range []string{"-c 1", "perf lat -c 10", "perf bw -t uc -c 10"} {
			cancel := k.Fail(match, syscall.ENOMEM)
			status, out, errs := ping(t, k, append(strings.Fields(line), serverAddr)...)
			cancel()
			if status != statusError || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "cannot allocate memory") {
				t.Errorf("%s, %s: status %d, stdout %q, stderr %q", what, line, status, out, errs)
			}
			if regexp.MustCompile("(?i)memlock|ulimit|locked").MatchString(errs) {
				t.Errorf("%s, %s: the limit is blamed: %s", what, line, errs)
			}
		}
	}
	t.Run("limited", func(t *testing.T) {
		memlock(t, 64<<10)
		for what, match := range others {
			shortage(t, what, match)
		}
	})
	t.Run("no limit", func(t *testing.T) {
		memlock(t, unix.RLIM_INFINITY)
		shortage(t, "memory", memory)
	})
}

//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/internal/fakekernel"
)

// serverAddr is an address of the fake kernel's first device.
const serverAddr = "10.9.0.1"

// newKernel is a fake kernel that must hold nothing at the end of the test, as must the
// program: no goroutine outlives the commands.
func newKernel(t *testing.T, opts fakekernel.Options) *fakekernel.Kernel {
	t.Helper()
	// The goroutine of os/signal, which the first ping starts, stays for good.
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGQUIT)
	signal.Stop(quit)
	goroutines := runtime.NumGoroutine()
	k := fakekernel.New(opts)
	t.Cleanup(func() {
		eventually(t, func() string { return cmp.Diff(fakekernel.Counts{}, k.Counts()) })
		k.Close()
		eventually(t, func() string {
			if n := runtime.NumGoroutine(); n > goroutines {
				return fmt.Sprintf("%d goroutines, were %d", n, goroutines)
			}
			return ""
		})
	})
	return k
}

// eventually waits until check has nothing to complain about.
func eventually(t *testing.T, check func() string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		complaint := check()
		if complaint == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("still, after 10 s: %s", complaint)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// output is what a command running in another goroutine prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// await waits until the output contains text.
func (o *output) await(t *testing.T, text string) {
	t.Helper()
	eventually(t, func() string {
		if got := o.String(); !strings.Contains(got, text) {
			return "no " + text + " in: " + got
		}
		return ""
	})
}

// command is a run of the program that goes on until stop, or until it ends by itself.
type command struct {
	t           *testing.T
	out, errOut output
	cancel      context.CancelFunc
	done        chan int
}

func start(t *testing.T, k *fakekernel.Kernel, args ...string) *command {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &command{t: t, cancel: cancel, done: make(chan int, 1)}
	go func() { c.done <- run(ctx, args, &c.out, &c.errOut, k.System()) }()
	return c
}

// stop is Ctrl-C; wait returns the status.
func (c *command) stop() int { c.cancel(); return c.wait() }

func (c *command) wait() int {
	c.t.Helper()
	defer c.cancel()
	select {
	case status := <-c.done:
		return status
	case <-time.After(30 * time.Second):
		c.t.Fatalf("does not end; stdout:\n%s\nstderr:\n%s", c.out.String(), c.errOut.String())
		return -1
	}
}

// serve starts a server, which must end well with the test.
func serve(t *testing.T, k *fakekernel.Kernel, args ...string) *command {
	t.Helper()
	s := start(t, k, append([]string{"serve"}, args...)...)
	s.out.await(t, "listening on")
	t.Cleanup(func() {
		if status := s.stop(); status != statusOK || s.errOut.String() != "" {
			t.Errorf("serve: status %d, stderr %q", status, s.errOut.String())
		}
	})
	return s
}

// ping runs a client to its end.
func ping(t *testing.T, k *fakekernel.Kernel, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	c := start(t, k, args...)
	status = c.wait()
	return status, c.out.String(), c.errOut.String()
}

// mustMatch checks an output against a regular expression, with (?s) and anchors.
func mustMatch(t *testing.T, what, got, pattern string) {
	t.Helper()
	if !regexp.MustCompile(`(?s)^(?:` + pattern + `)$`).MatchString(got) {
		t.Errorf("%s does not match %s:\n%s", what, pattern, got)
	}
}

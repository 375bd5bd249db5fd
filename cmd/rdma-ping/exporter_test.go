package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
)

func TestExporterReasons(t *testing.T) {
	dial := func(err error) error { return &dialError{err: &rdmacm.Error{Op: "connect", Err: err}} }
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errNoDevices, reasonNoDevice},
		{&discover.Error{Kind: discover.ErrNoModule}, reasonNoDevice},
		{fmt.Errorf("none: %w", errors.Join(&discover.Error{Kind: discover.ErrNoNode, Err: syscall.ENOENT})), reasonNoDevice},
		{dial(syscall.ENODEV), reasonNoDevice},
		{dial(rdmacm.ErrDeviceRemoved), reasonNoDevice},
		{&discover.Error{Kind: discover.ErrNoPermission, Err: syscall.EACCES}, reasonPermission},
		{dial(syscall.EPERM), reasonPermission},
		{dial(fmt.Errorf("register: %w", syscall.ENOMEM)), reasonMemlock},
		{fmt.Errorf("look up x: %w", &net.DNSError{IsNotFound: true}), reasonLookup},
		{fmt.Errorf("look up x: %w", &net.DNSError{IsTimeout: true}), reasonLookup},
		{dial(syscall.ENETUNREACH), reasonNoRoute},
		{dial(syscall.EHOSTUNREACH), reasonUnreachable},
		{dial(syscall.ETIMEDOUT), reasonUnreachable},
		{dial(context.DeadlineExceeded), reasonTimeout},
		{dial(syscall.ECONNREFUSED), reasonRefused},
		{dial(&rdmacm.RejectedError{Reason: rdmacm.RejectNoService}), reasonRefused},
		{dial(&rdmacm.RejectedError{Reason: -int32(syscall.ECONNREFUSED)}), reasonRefused},
		{dial(&rdmacm.RejectedError{Reason: rdmacm.RejectConsumer}), reasonRejected},
		{dial(&rdmacm.RejectedError{Reason: -int32(syscall.ECONNRESET)}), reasonRejected},
		{dial(&rdmacm.RejectedError{Reason: 1234}), reasonRejected},
		{usagef("-i is too long"), reasonOther},
		{dial(syscall.EINVAL), reasonOther},
	} {
		got := connectReason(tt.err)
		if got != tt.want {
			t.Errorf("%v: %s, want %s", tt.err, got, tt.want)
		}
		if !slices.Contains(connectReasons(), got) {
			t.Errorf("%s is not in the list", got)
		}
	}
}

// TestExporterBackoff: never before 1 s, never after 30 s, at first soon, at last late.
func TestExporterBackoff(t *testing.T) {
	for tries := range 100 {
		least, most := time.Hour, time.Duration(0)
		for range 1000 {
			d := backoff(tries)
			least, most = min(least, d), max(most, d)
		}
		limit := 30 * time.Second
		if tries < 4 {
			limit = time.Second + time.Second<<tries
		}
		if least < time.Second || most >= limit || most < limit/2 {
			t.Errorf("try %d: from %v to %v, at most %v", tries, least, most, limit)
		}
	}
}

func TestExporterTargets(t *testing.T) {
	list := func(text string, args ...string) ([]string, error) {
		e := exporterOptions{targets: filepath.Join(t.TempDir(), "hosts")}
		testutil.Must(t, os.WriteFile(e.targets, []byte(text), 0o666))
		got, err := e.list(args)
		if err != nil && !errors.As(err, new(*usageError)) {
			t.Errorf("%q: %v is no error of usage", text, err)
		}
		return got, err
	}
	got, err := list("# the mesh\n10.9.0.1\n\n  node-2.example:99 # the second\r\n[fe80::1%eth0]:7\n2001:db8::1", "10.9.0.9")
	want := []string{"10.9.0.9", "10.9.0.1", "node-2.example:99", "[fe80::1%eth0]:7", "2001:db8::1"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for text, want := range map[string]string{
		"# none\n":               "no address: whom to ping\\?",
		"10.9.0.1\n\na b\n":      "/hosts, line 3: address \"a b\": neither an IP address nor a host name",
		"10.9.0.1:0":             "/hosts, line 1: address \"10.9.0.1:0\": want HOST:PORT.*",
		"fe80::1":                "/hosts, line 1: address fe80::1 is link-local: .*",
		"1:2:3":                  "/hosts, line 1: address \"1:2:3\": not an IPv6 address",
		"10.9.0.1#x\n10.9.0.1":   "/hosts, line 2: 10.9.0.1 is there twice",
		"fe80::1%\xff":           "/hosts, line 1: address .*: neither .*",
		"ok\n{\"json\": true}\n": "/hosts, line 2: address .*",
	} {
		if got, err := list(text); err == nil {
			t.Errorf("%q gives %q", text, got)
		} else {
			if !regexp.MustCompile("^.*" + want + "$").MatchString(err.Error()) {
				t.Errorf("%q: %v, want %s", text, err, want)
			}
		}
	}
}

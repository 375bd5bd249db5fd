package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
)

// games are what is played, against C in both roles and against ourselves.
var games = []options{
	{test: "send"},
	{test: "send", size: 5000},
	{test: "send", iters: 520}, // more than receives are posted
	{test: "send", transport: "UC"},
	{test: "send", transport: "UD"},
	{test: "send", transport: "UD", size: 1024},
	{test: "write"},
	{test: "write", size: 5000, iters: 260}, // the byte that counts wraps around
	{test: "write", transport: "UC"},
	{test: "read"},
	{test: "read", size: 5000},
	{test: "atomic", atomic: fetchAdd},
	{test: "atomic", atomic: compareSwap},
	{test: "send", cm: true},
	{test: "write", cm: true},
	{test: "read", cm: true},
	{test: "atomic", atomic: fetchAdd, cm: true},
}

func name(o options) string {
	s := o.test + " " + o.transport
	if o.atomic != "" {
		s += " " + o.atomic
	}
	if o.size != 0 {
		s += fmt.Sprintf(" -s %d", o.size)
	}
	if o.iters != 100 {
		s += fmt.Sprintf(" -n %d", o.iters)
	}
	if o.cm {
		s += " -R"
	}
	return s
}

// at is the game at a port of its own, and with what is usual.
func (o options) at(port int) options {
	o.port, o.gidIndex = port, 1
	if o.transport == "" {
		o.transport = "RC"
	}
	if o.iters == 0 {
		o.iters = 100
	}
	return o
}

// device finds a device for a game. iWARP can do less.
func device(t *testing.T, o options) string {
	d := testutil.Device(t)
	if d.Protocol() == "iw" && (!o.cm || o.test == "atomic") {
		t.Skip("iWARP has no atomic operations, and connects by the connection manager only")
	}
	return d.Name()
}

func host(o options) string {
	if o.cm {
		return "10.9.0.1"
	}
	return "127.0.0.1"
}

// TestInteropPerftestClient: the C program is the client, and polls; this side sleeps.
func TestInteropPerftestClient(t *testing.T) {
	for i, o := range games {
		o := o.at(18700 + i)
		o.events = o.test != "write"
		t.Run(name(o), func(t *testing.T) { interop(t, o) })
	}
}

// TestInteropPerftestServer: the C program is the server, and both poll.
func TestInteropPerftestServer(t *testing.T) {
	for i, o := range games {
		o := o.at(18740 + i)
		o.server = host(o)
		t.Run(name(o), func(t *testing.T) { interop(t, o) })
	}
}

// TestInteropPerftestEvents: the C program is the server, and this side sleeps.
func TestInteropPerftestEvents(t *testing.T) {
	for i, o := range []options{{test: "send"}, {test: "send", cm: true}, {test: "read"}} {
		o := o.at(18780 + i)
		o.events, o.server = true, host(o)
		t.Run(name(o), func(t *testing.T) { interop(t, o) })
	}
}

// interop plays one game.
func interop(t *testing.T, o options) {
	o.device = device(t, o)
	testutil.NoLeaks(t)
	errGo, errC := tries(t, func() (error, error) { return against(t, o) })
	if errGo != nil {
		t.Errorf("Go: %v", errGo)
	}
	if errC != nil {
		t.Errorf("C: %v", errC)
	}
}

// tries plays again for two reasons only: under emulation a C program sometimes crashes, and
// siw has its fault.
func tries(t *testing.T, play func() (error, error)) (err1, err2 error) {
	for try := 1; ; try++ {
		err1, err2 = play()
		err := errors.Join(err1, err2)
		var crash *crashError
		switch {
		case try == 1 && errors.As(err, &crash), try < 4 && errors.Is(err, errUnheard):
			t.Logf("trying again: %v", err)
		default:
			return err1, err2
		}
	}
}

func against(t *testing.T, o options) (errGo, errC error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := make(chan error, 1)
	go func() { c <- runC(ctx, testutil.Command(t, "ib_"+o.test+"_lat"), arguments(o)) }()
	here := make(chan error, 1)
	go func() { here <- run(ctx, o, io.Discard) }()
	for range 2 {
		select {
		case errGo = <-here:
			if errGo != nil { // let the other side notice, but not for ever
				defer time.AfterFunc(3*time.Second, cancel).Stop()
			}
		case errC = <-c:
			if errC != nil {
				defer time.AfterFunc(3*time.Second, cancel).Stop()
			}
		}
	}
	return errGo, errC
}

// arguments are those of the C program in the other role.
func arguments(o options) []string {
	args := strings.Fields(fmt.Sprintf("-F -d %s -n %d -p %d", o.device, o.iters, o.port))
	if o.size != 0 {
		args = append(args, "-s", strconv.Itoa(o.size))
	}
	if o.test == "atomic" {
		args = append(args, "-A", o.atomic)
	} else {
		args = append(args, "-c", o.transport)
	}
	if o.cm {
		args = append(args, "-R")
	} else {
		args = append(args, "-x", strconv.Itoa(o.gidIndex))
	}
	if o.server == "" {
		args = append(args, host(o))
	}
	return args
}

// crashError says that the C program died by a signal that was not ours.
type crashError struct{ err error }

func (e *crashError) Error() string { return e.err.Error() }

// tooEarly tells whether a C client says that nobody listens yet: on TCP, by a rejection,
// and on iWARP before Linux 6 at once.
func tooEarly(out []byte) bool {
	for _, s := range []string{"Couldn't connect to ", "Unexpected CM event bl blka 8", "Function rdma_connect failed"} {
		if bytes.Contains(out, []byte(s)) {
			return true
		}
	}
	return false
}

// runC runs the C program; as a client, until the server is up.
func runC(ctx context.Context, path string, args []string) error {
	for {
		out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && tooEarly(out) {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		err = fmt.Errorf("%s %s: %w\n%s", path, strings.Join(args, " "), err, out)
		if ctx.Err() == nil && signalled(err) {
			return &crashError{err}
		}
		return err
	}
}

func signalled(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

// TestGoToGo plays all games against ourselves.
func TestGoToGo(t *testing.T) {
	for i, o := range games {
		o := o.at(18790 + i)
		o.events = o.test != "write"
		t.Run(name(o), func(t *testing.T) {
			o.device = device(t, o)
			testutil.NoLeaks(t)
			client, server := tries(t, func() (error, error) { return alone(o) })
			if client != nil {
				t.Errorf("client: %v", client)
			}
			if server != nil {
				t.Errorf("server: %v", server)
			}
		})
	}
}

// alone plays both ends.
func alone(o options) (errClient, errServer error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	server := make(chan error, 1)
	go func() { server <- run(ctx, o, io.Discard) }()
	client := o
	client.server = host(o)
	var out strings.Builder
	err := run(ctx, client, &out)
	if err == nil && !strings.Contains(out.String(), "usec") {
		err = fmt.Errorf("no figures in %q", out.String())
	}
	return err, <-server
}

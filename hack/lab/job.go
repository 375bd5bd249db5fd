//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/pureverbs/rdma/hack/lab/wire"
)

// abortLimit is how long the guest may take to end a job whose time is up.
const abortLimit = 20 * time.Second

// errTimeout says that a job's time was up.
var errTimeout = errors.New("the time limit was reached")

// jobIO is what a job reads, if anything, and where its output goes.
type jobIO struct {
	in       io.Reader
	out, err io.Writer
	acked    chan struct{} // gets a value when the job has taken a piece of input
}

// run runs a job and waits for its end. Errors: errTimeout, errDied, a cancelled
// context; after each of them the guest must be closed.
func (g *guest) run(ctx context.Context, sig *interrupts, j wire.Job, jio jobIO, limit time.Duration) (wire.Status, error) {
	if err := g.vm.Conn.SendJSON(wire.Start, j); err != nil {
		return wire.Status{}, g.died()
	}
	kill := make(chan struct{})
	defer sig.handle(g.forward(kill))()
	jio.acked = make(chan struct{}, 1)
	if jio.in == nil {
		_ = g.vm.Conn.Send(wire.StdinEOF, nil) // if it is gone, frames will tell
	} else {
		go g.forwardInput(jio.in, jio.acked)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var late error
	for {
		select {
		case f, ok := <-g.frames:
			if !ok {
				return wire.Status{}, g.died()
			}
			if f.kind == wire.Exit {
				return g.ended(f.payload, late)
			}
			if err := jio.take(f); err != nil {
				return wire.Status{}, err
			}
		case <-timer.C:
			if late != nil {
				g.showConsole()
				return wire.Status{}, fmt.Errorf("%w, and the guest hangs", errTimeout)
			}
			late = errTimeout
			say("%v (%v), ending the job", errTimeout, limit)
			_ = g.vm.Conn.Send(wire.Abort, nil) // if it is gone, frames will tell
			timer.Reset(abortLimit)
		case <-kill:
			return wire.Status{}, context.Canceled
		case <-ctx.Done():
			return wire.Status{}, ctx.Err()
		}
	}
}

// ended reads how a job ended.
func (g *guest) ended(payload []byte, late error) (wire.Status, error) {
	var s wire.Status
	if err := json.Unmarshal(payload, &s); err != nil {
		return s, fmt.Errorf("read the job's status: %w", err)
	}
	if s.Note != "" {
		say("%s", s.Note)
	}
	if late != nil {
		g.showConsole()
	}
	return s, late
}

func (jio jobIO) take(f frame) error {
	var err error
	switch f.kind {
	case wire.Stdout:
		_, err = jio.out.Write(f.payload)
	case wire.Stderr:
		_, err = jio.err.Write(f.payload)
	case wire.StdinAck:
		select {
		case jio.acked <- struct{}{}:
		default: // nobody waits: input has ended
		}
	}
	return err
}

// forward passes signals to the job. Who sends a third one wants out: the guest
// is not to be waited for.
func (g *guest) forward(kill chan<- struct{}) func(syscall.Signal) {
	n := 0
	return func(s syscall.Signal) {
		n++
		if n == 3 {
			close(kill)
		}
		if n < 3 {
			_ = g.vm.Conn.Send(wire.Signal, []byte{byte(s)}) // if it is gone, frames will tell
		}
	}
}

package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(t.Context())
		g := newGuard(parent)
		defer g.close()

		ctx := g.start(time.Second)
		time.Sleep(900 * time.Millisecond)
		g.stop()
		time.Sleep(time.Second)
		if err := ctx.Err(); err != nil {
			t.Fatalf("stopped in time, but the context ended: %v", err)
		}
		if again := g.start(time.Second); again != ctx {
			t.Error("a limit that was kept costs a new context")
		}
		time.Sleep(2 * time.Second)
		if cause := context.Cause(ctx); !errors.Is(cause, errTimeout) {
			t.Errorf("cause = %v, want errTimeout", cause)
		}
		g.stop()
		ctx = g.start(time.Second)
		if err := ctx.Err(); err != nil {
			t.Errorf("the next limit has ended before it began: %v", err)
		}
		cancel()
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			t.Errorf("cause = %v, want that of the parent", cause)
		}
		g.stop()
	})
}

package main

import (
	"github.com/spf13/pflag"

	"github.com/pureverbs/rdma/uverbs"
)

// waiting is how the program waits for completions, unless on events of the netpoller.
type waiting struct {
	poll  bool
	block bool
}

// addFlags adds the flags; each is what takes a CPU or a thread of its own.
func (w *waiting) addFlags(f *pflag.FlagSet, each string) {
	f.BoolVar(&w.poll, "poll", false, "spin instead of waiting for events: lower latency, takes a CPU for each "+each)
	f.BoolVar(&w.block, "block", false, "wait for events with the thread, as C does, which takes a thread for each "+each)
}

func (w *waiting) check() error {
	if w.poll && w.block {
		return usagef("--poll and --block exclude each other")
	}
	return nil
}

func (w *waiting) String() string {
	switch {
	case w.poll:
		return "polling"
	case w.block:
		return "events, blocking"
	}
	return "events"
}

// channel makes a completion channel for that.
func (w *waiting) channel(c *uverbs.Context) (*uverbs.CompChannel, error) {
	if w.block {
		return c.NewBlockingCompChannel()
	}
	return c.NewCompChannel()
}

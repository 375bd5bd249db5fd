//go:build linux

package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupts are the signals that ask us to end. Without a handler they cancel
// the context; while a job runs, its handler gets them.
type interrupts struct {
	mu      sync.Mutex
	handler func(syscall.Signal)
	any     bool // there was one
	cancel  context.CancelFunc
	ch      chan os.Signal
}

func catchInterrupts(parent context.Context) (context.Context, *interrupts) {
	ctx, cancel := context.WithCancel(parent)
	i := &interrupts{cancel: cancel, ch: make(chan os.Signal, 4)}
	signal.Notify(i.ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	// A reader that goes away (| head) shows as an error of the write.
	signal.Ignore(syscall.SIGPIPE)
	go func() {
		for s := range i.ch {
			i.deliver(s.(syscall.Signal))
		}
	}()
	return ctx, i
}

func (i *interrupts) deliver(s syscall.Signal) {
	i.mu.Lock()
	h := i.handler
	i.any = true
	i.mu.Unlock()
	if h == nil {
		i.cancel()
		return
	}
	h(s)
}

// handle sets who gets the signals; the function returned sets it back.
func (i *interrupts) handle(h func(syscall.Signal)) (restore func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handler = h
	return func() { i.handle(nil) }
}

// seen tells whether there was any.
func (i *interrupts) seen() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.any
}

func (i *interrupts) stop() {
	signal.Stop(i.ch)
	close(i.ch)
	i.cancel()
}

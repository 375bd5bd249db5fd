//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// runCommand runs tests on each of the kernels asked for.
func runCommand(ctx context.Context, sig *interrupts, o options) (int, error) {
	root, err := findRoot()
	if err != nil {
		return exitTrouble, err
	}
	o.share, o.console, o.coverProfile = under(root, o.share), under(root, o.console), under(root, o.coverProfile)
	dir, err := os.MkdirTemp("", "pureverbs-lab-")
	if err != nil {
		return exitTrouble, err
	}
	defer os.RemoveAll(dir)
	host := filepath.Join(dir, "host")
	items, err := buildItems(ctx, root, host, o)
	if err != nil {
		return exitTrouble, err
	}
	result := 0
	for _, k := range o.kernels {
		m, err := prepare(ctx, k, false)
		if skip(err, o) {
			continue
		}
		if err != nil {
			return exitTrouble, err
		}
		r := runner{o: o, m: m, root: root, dir: dir}
		code, err := r.runAll(ctx, sig, items)
		if err != nil {
			return exitTrouble, err
		}
		result = max(result, code)
	}
	if o.coverProfile != "" {
		if err := mergeCover(ctx, host, o.coverProfile, o.coverMode()); err != nil {
			return exitTrouble, err
		}
	}
	return result, nil
}

// runner runs items on one kernel.
type runner struct {
	o         options
	m         machine
	root, dir string
	guest     *guest // nil: none is up
}

// runAll runs items in one guest, or in another where one did not survive.
func (r *runner) runAll(ctx context.Context, sig *interrupts, items []item) (int, error) {
	unlock, err := r.lockMachine(ctx)
	if err != nil {
		return exitTrouble, err
	}
	defer unlock()
	defer r.endGuest(true)
	result := 0
	for _, it := range items {
		if it.skipped != "" {
			fmt.Printf("?   \t%s\t%s\n", it.name, it.skipped)
			continue
		}
		if r.guest == nil {
			if r.guest, err = bootGuest(ctx, r.m, r.o, r.root, r.dir); err != nil {
				return exitTrouble, err
			}
		}
		code, err := r.runOne(ctx, sig, it)
		if err != nil {
			return exitTrouble, err
		}
		result = max(result, code)
		if sig.seen() { // the user wants no more
			return result, context.Canceled
		}
	}
	return result, nil
}

// lockMachine keeps other guests with tests away: two at a time disturb each
// other's times.
func (r *runner) lockMachine(ctx context.Context) (func(), error) {
	dir, err := cacheDir()
	if err != nil {
		return nil, err
	}
	return lock(ctx, filepath.Join(dir, "run.lock"), "another lab run to end")
}

// runOne runs an item and says how it ended, as go test does.
func (r *runner) runOne(ctx context.Context, sig *interrupts, it item) (int, error) {
	it.job.Env = r.o.environment(r.m.image.Suite)
	if r.o.cover {
		it.job.Env = append(it.job.Env, "GOCOVERDIR=/host/covdata")
	}
	began := time.Now()
	s, err := r.guest.run(ctx, sig, it.job, jobIO{out: os.Stdout, err: os.Stderr}, r.o.timeout)
	took := fmt.Sprintf("%.3fs", time.Since(began).Seconds())
	switch {
	case errors.Is(err, errTimeout), errors.Is(err, errDied):
		r.endGuest(false)
		fmt.Printf("FAIL\t%s\t%s (%v)\n", it.name, took, err)
		return exitFailed, nil
	case err != nil:
		return exitTrouble, err
	case s.Code != 0:
		fmt.Printf("FAIL\t%s\t%s (exit status %d, kernel %s)\n", it.name, took, s.Code, r.m.image.Suite.Kernel)
		return exitFailed, nil
	}
	fmt.Printf("ok  \t%s\t%s (kernel %s)\n", it.name, took, r.m.image.Suite.Kernel)
	return 0, nil
}

// endGuest ends the guest, in good order if it can still take part.
func (r *runner) endGuest(order bool) {
	if r.guest == nil {
		return
	}
	if order {
		r.guest.powerOff()
	} else {
		r.guest.close()
	}
	r.guest = nil
}

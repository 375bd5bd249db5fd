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

// runCommand runs tests on each of the kernels with each of the devices asked for.
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
	results, err := inEach(ctx, o.cells(), func(c cell) result {
		return runCell(ctx, sig, &runner{o: o.on(c), root: root, dir: dir}, c, items)
	})
	if len(results) > 1 {
		fmt.Print(table(results))
	}
	if err != nil {
		return exitTrouble, err
	}
	if o.coverProfile != "" {
		if err := mergeCover(ctx, host, o.coverProfile, o.coverMode()); err != nil {
			return exitTrouble, err
		}
	}
	return conclude(results)
}

func runCell(ctx context.Context, sig *interrupts, r *runner, c cell, items []item) result {
	res := result{cell: c}
	if r.m, res.err = prepare(ctx, c, false); res.err != nil {
		return res
	}
	res.code, res.err = r.runAll(ctx, sig, items)
	if !r.began.IsZero() {
		res.took = time.Since(r.began)
	}
	return res
}

// runner runs items in one kind of guest.
type runner struct {
	o         options
	m         machine
	root, dir string
	guest     *guest    // nil: none is up
	began     time.Time // when it was our turn
}

// runAll runs items in one guest, or in another where one did not survive.
func (r *runner) runAll(ctx context.Context, sig *interrupts, items []item) (int, error) {
	unlock, err := r.lockMachine(ctx)
	if err != nil {
		return exitTrouble, err
	}
	defer unlock()
	r.began = time.Now()
	defer r.keepCover()
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
		if errors.Is(err, errEmulator) {
			say("%v; running %s once more", err, it.name)
			if r.guest, err = bootGuest(ctx, r.m, r.o, r.root, r.dir); err == nil {
				code, err = r.runOne(ctx, sig, it)
			}
		}
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

// runOne runs an item and says how it ended, as go test does. errEmulator: it should
// be run again.
func (r *runner) runOne(ctx context.Context, sig *interrupts, it item) (int, error) {
	it.job.Env = r.o.environment(r.m.image.Suite)
	if r.o.cover {
		it.job.Env = append(it.job.Env, "GOCOVERDIR=/host/covdata")
	}
	began := time.Now()
	s, err := r.guest.run(ctx, sig, it.job, jobIO{out: os.Stdout, err: os.Stderr}, r.o.timeout)
	took := fmt.Sprintf("%.3fs", time.Since(began).Seconds())
	where := r.o.where(r.m.image.Suite)
	switch {
	case errors.Is(err, errEmulator):
		r.endGuest(false)
		return exitFailed, err
	case errors.Is(err, errTimeout), errors.Is(err, errDied):
		r.endGuest(false)
		fmt.Printf("FAIL\t%s\t%s (%v, %s)\n", it.name, took, err, where)
		return exitFailed, nil
	case err != nil:
		return exitTrouble, err
	case s.Code != 0:
		fmt.Printf("FAIL\t%s\t%s (exit status %d, %s)\n", it.name, took, s.Code, where)
		return exitFailed, nil
	}
	fmt.Printf("ok  \t%s\t%s (%s)\n", it.name, took, where)
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

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// keepCover moves the profiles of a kind of guest to a folder of its own: those of
// the next have the same names.
func (r *runner) keepCover() {
	dir := filepath.Join(r.dir, "host", "cover")
	own := filepath.Join(dir, r.m.image.Suite.Kernel+"-"+r.o.device)
	if err := os.Mkdir(own, 0o755); err != nil {
		say("keep the coverage: %v", err)
		return
	}
	profiles, _ := filepath.Glob(filepath.Join(dir, "*.test"))
	for _, p := range profiles {
		if err := os.Rename(p, filepath.Join(own, filepath.Base(p))); err != nil {
			say("keep the coverage: %v", err)
		}
	}
}

// mergeCover joins the profiles of all test binaries, and what the commands they
// started left, in one file.
func mergeCover(ctx context.Context, host, out, mode string) error {
	profiles, _ := filepath.Glob(filepath.Join(host, "cover", "*", "*"))
	data := filepath.Join(host, "covdata")
	if left, _ := filepath.Glob(filepath.Join(data, "covmeta.*")); left != nil {
		text := filepath.Join(host, "commands.cover")
		if err := goTool(ctx, host, nil, "tool", "covdata", "textfmt", "-i="+data, "-o="+text); err != nil {
			return err
		}
		profiles = append(profiles, text)
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintf(f, "mode: %s\n", mode)
	for _, p := range profiles {
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		// The tools that read profiles add up what is there more than once.
		_, blocks, ok := strings.Cut(string(b), "\n")
		if !ok || !strings.HasPrefix(string(b), "mode: "+mode) {
			return errors.New("merge coverage: " + filepath.Base(p) + " is not a profile of mode " + mode)
		}
		if _, err := f.WriteString(blocks); err != nil {
			return err
		}
	}
	return f.Close()
}

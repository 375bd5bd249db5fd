//go:build unix

// Command picture records what a command prints on a terminal and draws it as an SVG, in
// which the lines appear when they were printed. hack/picture.sh makes docs/picture.svg by it.
//
//	go -C hack run ./picture -o ../docs/picture.svg -- COMMAND ARGUMENT...
//	go -C hack run ./picture -o ../docs/picture.svg -cast FILE    # drawn anew from a recording
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.out, "o", "", "`file` to write")
	flag.StringVar(&o.cast, "cast", "", "`file` to keep the recording in (asciicast v2), or to take it from if there is no command")
	flag.StringVar(&o.title, "title", "rdma-ping", "`text` on the window")
	flag.IntVar(&o.columns, "columns", 100, "width of the terminal")
	flag.DurationVar(&o.gap, "gap", 1200*time.Millisecond, "longest pause between two lines; longer ones are cut")
	flag.Parse()
	if err := o.run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

type options struct {
	out, cast, title string
	columns          int
	gap              time.Duration
}

func (o *options) run(command []string) (err error) {
	var rec recording
	switch {
	case o.out == "":
		return errors.New("where to? -o says")
	case len(command) == 0 && o.cast == "":
		return errors.New("what to draw? a command, or -cast")
	case len(command) == 0:
		rec, err = loadCast(o.cast)
	default:
		rec, err = record(command, o.columns)
		if err == nil && o.cast != "" {
			err = saveCast(o.cast, rec, o.columns)
		}
	}
	if err != nil {
		return err
	}
	lines := session(rec.lines(o.columns), o.gap)
	if len(lines) == 0 {
		return fmt.Errorf("no prompt %q in what was printed: nothing to draw", prompt)
	}
	return os.WriteFile(o.out, draw(o.title, lines, o.columns), 0o644)
}

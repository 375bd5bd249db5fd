// Command gen-abi makes package abi from the kernel's own headers, in two steps:
//
//	go -C hack run . extract     headers -> hack/uapi.json (no C compiler needed)
//	go -C hack run . generate    hack/uapi.json -> abi/z*.go (no headers needed)
//
// and proves the result: check, layout and assert. README.md has the details.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

const usage = `usage: gen-abi STEP [flags]
  extract   read kernel headers, write uapi.json
  generate  write abi/z*.go from uapi.json
  check     fail if abi/z*.go or uapi.json is not what the steps above make
  layout    write the golden layout of one kernel's headers
  assert    write C assertions for gcc
  headers   fetch a Debian suite's kernel headers, print where they are
Paths are relative to hack/. "gen-abi STEP -h" lists the flags of a step.`

// exitGone tells scripts that a step could not run for want of headers.
const exitGone = 3

func main() {
	err := run(os.Args[1:], os.Stdout)
	switch {
	case err == nil:
	case errors.Is(err, errGone):
		fmt.Fprintln(os.Stderr, "gen-abi:", err)
		os.Exit(exitGone)
	default:
		fmt.Fprintln(os.Stderr, "gen-abi:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	steps := map[string]func([]string, io.Writer) error{
		"extract": runExtract, "generate": runGenerate, "check": runCheck,
		"layout": runLayout, "assert": runAssert, "headers": runHeaders,
	}
	if len(args) == 0 || steps[args[0]] == nil {
		return fmt.Errorf("%s", usage)
	}
	return steps[args[0]](args[1:], stdout)
}

// source adds the flags that say which headers to read.
type source struct{ suite, dir, version, arch *string }

func sourceFlags(fl *flag.FlagSet) source {
	return source{
		suite:   fl.String("suite", "sid", "Debian `suite` whose linux-libc-dev to fetch"),
		dir:     fl.String("headers", "", "read this include `directory` instead of fetching"),
		version: fl.String("version", "unknown", "package version of -headers"),
		arch:    fl.String("arch", "amd64", "GOARCH to lay out for"),
	}
}

func (s source) extract() (*Facts, error) {
	dir, version := *s.dir, *s.version
	if dir == "" {
		h, err := fetchHeaders(*s.suite, "")
		if err != nil {
			return nil, err
		}
		dir, version = h.dir, h.version
	}
	f, err := extract(dir, *s.arch, present(dir, inputs))
	if err != nil {
		return nil, err
	}
	f.Package, f.Version = headersPackage, version
	return f, nil
}

// present leaves out headers that an older kernel does not have.
func present(dir string, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		_, err := os.Stat(filepath.Join(dir, n))
		return err != nil
	})
}

func runExtract(args []string, _ io.Writer) error {
	fl := flag.NewFlagSet("extract", flag.ContinueOnError)
	src := sourceFlags(fl)
	out := fl.String("o", "uapi.json", "output `file`")
	if err := fl.Parse(args); err != nil {
		return err
	}
	f, err := src.extract()
	if err != nil {
		return err
	}
	return writeFile(*out, func(w io.Writer) error { return writeFacts(w, f) })
}

func runLayout(args []string, stdout io.Writer) error {
	fl := flag.NewFlagSet("layout", flag.ContinueOnError)
	src := sourceFlags(fl)
	kernel := fl.String("kernel", "", "kernel `version`, as in the file's name")
	out := fl.String("o", "", "output `file` (default ../abi/testdata/layout-KERNEL.json)")
	if err := fl.Parse(args); err != nil {
		return err
	}
	f, err := src.extract()
	if err != nil {
		return err
	}
	if *kernel == "" {
		*kernel = strings.Join(strings.SplitN(f.Version, ".", 3)[:2], ".")
	}
	if *out == "" {
		*out = filepath.Join("..", "abi", "testdata", "layout-"+*kernel+".json")
	}
	l := layoutOf(f)
	l.Kernel = *kernel
	fmt.Fprintln(stdout, *out)
	return writeFile(*out, l.write)
}

func runGenerate(args []string, _ io.Writer) error {
	fl := flag.NewFlagSet("generate", flag.ContinueOnError)
	in := fl.String("facts", "uapi.json", "input `file`")
	dir := fl.String("o", "../abi", "output `directory`")
	if err := fl.Parse(args); err != nil {
		return err
	}
	f, err := readFacts(*in)
	if err != nil {
		return err
	}
	files, err := generate(f)
	if err != nil {
		return err
	}
	for _, n := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(filepath.Join(*dir, n), files[n], 0o644); err != nil {
			return err
		}
	}
	return removeStale(*dir, files)
}

func runAssert(args []string, stdout io.Writer) error {
	fl := flag.NewFlagSet("assert", flag.ContinueOnError)
	in := fl.String("facts", "uapi.json", "input `file`")
	arch := fl.String("arch", hostArch(), "GOARCH of the headers of -have")
	have := fl.String("have", "", "assert only what the headers of this `directory` declare too")
	if err := fl.Parse(args); err != nil {
		return err
	}
	f, err := readFacts(*in)
	if err != nil {
		return err
	}
	var other *Layout
	if *have != "" {
		g, err := extract(*have, *arch, present(*have, inputs))
		if err != nil {
			return err
		}
		other = layoutOf(g)
	}
	write := func(w io.Writer) error { return writeAsserts(w, f, other) }
	if fl.NArg() == 0 {
		return write(stdout)
	}
	return writeFile(fl.Arg(0), write)
}

// hostArch is where gcc will compile the assertions. Layouts do not depend on it,
// but the place of its asm headers does.
func hostArch() string {
	if _, ok := arches[runtime.GOARCH]; ok {
		return runtime.GOARCH
	}
	return "amd64"
}

// writeFile writes all or nothing.
func writeFile(path string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

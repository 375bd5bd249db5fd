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
	"slices"
)

// runCheck repeats both steps and compares. The second needs nothing; the first
// needs the headers uapi.json was made of, which a mirror keeps for a while only.
func runCheck(args []string, stdout io.Writer) error {
	fl := flag.NewFlagSet("check", flag.ContinueOnError)
	in := fl.String("facts", "uapi.json", "facts `file`")
	dir := fl.String("abi", "../abi", "`directory` of the generated files")
	offline := fl.Bool("offline", false, "do not fetch headers")
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
	if err := compareFiles(*dir, files); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "ok: %d generated files match %s\n", len(files), *in)
	if *offline {
		return nil
	}
	h, err := fetchHeaders(newestSuite, f.Version)
	if errors.Is(err, errGone) {
		fmt.Fprintf(stdout, "SKIPPED: %s was not extracted again: %v\n", *in, err)
		return nil
	}
	if err != nil {
		return err
	}
	return checkFacts(*in, f, h, stdout)
}

// checkFacts extracts again, for every 64-bit architecture: one set of Go
// files serves them all, which holds only as long as their layouts agree.
func checkFacts(path string, f *Facts, h headers, stdout io.Writer) error {
	want, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, arch := range slices.Sorted(maps.Keys(arches)) {
		g, err := extract(h.dir, arch, inputs)
		if err != nil {
			return err
		}
		g.Package, g.Version = f.Package, f.Version
		if arch != "amd64" {
			onlyMirrored(g)
			ref := *f
			onlyMirrored(&ref)
			if diff := firstDifference(encode(&ref), encode(g)); diff != "" {
				return fmt.Errorf("headers of %s %s differ for %s: %s", g.Package, g.Version, arch, diff)
			}
			continue
		}
		if diff := firstDifference(want, encode(g)); diff != "" {
			return fmt.Errorf("%s is not what the headers of %s %s give: %s", path, g.Package, g.Version, diff)
		}
	}
	fmt.Fprintf(stdout, "ok: %s matches the headers of %s %s on %s\n", path, f.Package, f.Version, slices.Sorted(maps.Keys(arches)))
	return nil
}

// onlyMirrored drops the macros that abi leaves out, since they may differ.
func onlyMirrored(f *Facts) {
	f.Headers = slices.Clone(f.Headers)
	for i := range f.Headers {
		h := &f.Headers[i]
		h.Decls = slices.DeleteFunc(slices.Clone(h.Decls), func(d Decl) bool {
			return d.Kind == "macro" && skipMacro(&d)
		})
	}
}

func encode(f *Facts) []byte {
	var b bytes.Buffer
	_ = writeFacts(&b, f) // a bytes.Buffer takes all, and facts always encode
	return b.Bytes()
}

// compareFiles fails if dir's generated files are not exactly files.
func compareFiles(dir string, files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if diff := firstDifference(files[name], got); diff != "" {
			return fmt.Errorf("%s is not what gen-abi makes (run make generate): %s", filepath.Join(dir, name), diff)
		}
	}
	stale, err := staleFiles(dir, files)
	if err == nil && len(stale) > 0 {
		err = fmt.Errorf("%s: generated once, but not any more (run make generate)", stale[0])
	}
	return err
}

// staleFiles finds z files that a generator of an earlier day left behind.
func staleFiles(dir string, files map[string][]byte) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(dir, "z*.go"))
	return slices.DeleteFunc(all, func(p string) bool { return files[filepath.Base(p)] != nil }), err
}

func removeStale(dir string, files map[string][]byte) error {
	stale, err := staleFiles(dir, files)
	for _, p := range stale {
		err = errors.Join(err, os.Remove(p))
	}
	return err
}

// firstDifference names the first line in which two texts differ, "" if none.
func firstDifference(want, got []byte) string {
	w, g := bytes.Split(want, []byte("\n")), bytes.Split(got, []byte("\n"))
	for i := range max(len(w), len(g)) {
		var a, b []byte
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if !bytes.Equal(a, b) || i >= len(w) || i >= len(g) {
			return fmt.Sprintf("line %d: want %q, got %q", i+1, a, b)
		}
	}
	return ""
}

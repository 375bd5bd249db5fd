//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pureverbs/rdma/hack/lab/wire"
)

// item is something for run to run in the guest.
type item struct {
	name    string // for people
	job     wire.Job
	skipped string // why it cannot run, if so
}

// buildItems builds what is to run into the folder that the guest sees as /host.
// Relative names are taken from the repository's root, wherever one stands.
func buildItems(ctx context.Context, root, host string, o options) ([]item, error) {
	for _, d := range []string{"bin", "tests", "cover", "covdata"} {
		if err := os.MkdirAll(filepath.Join(host, d), 0o755); err != nil {
			return nil, err
		}
	}
	if err := buildPrograms(ctx, root, host, o); err != nil {
		return nil, err
	}
	var items []item
	var patterns []string
	for _, a := range o.args {
		if fi, err := os.Stat(under(root, a)); err != nil || fi.IsDir() {
			patterns = append(patterns, a)
			continue
		}
		it, err := script(under(root, a), host)
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	if patterns == nil {
		return items, nil
	}
	tests, err := buildTests(ctx, root, host, o, patterns)
	return append(tests, items...), err
}

// script is an executable file that runs as it is.
func script(path, host string) (item, error) {
	if err := install(path, filepath.Join(host, "tests")); err != nil {
		return item{}, err
	}
	name := filepath.Base(path)
	return item{name: name, job: wire.Job{Argv: []string{"/host/tests/" + name}, Dir: "/host"}}, nil
}

// install copies an executable file into a folder.
func install(path, dir string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	if fi.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not executable", path)
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, filepath.Base(path)), os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// buildPrograms makes the programs that tests use.
func buildPrograms(ctx context.Context, root, host string, o options) error {
	for _, f := range o.files {
		if err := install(under(root, f), filepath.Join(host, "bin")); err != nil {
			return err
		}
	}
	for _, c := range o.sources {
		if err := compile(ctx, under(root, c), filepath.Join(host, "bin")); err != nil {
			return err
		}
	}
	if len(o.commands) == 0 {
		return nil
	}
	args := append([]string{"build", "-buildvcs=false"}, o.goFlags()...)
	args = append(args, "-o", filepath.Join(host, "bin")+"/")
	return goTool(ctx, root, o.goEnv(), append(args, o.commands...)...)
}

// compile makes a C program, against the libraries of this machine, which are
// those of the guest.
func compile(ctx context.Context, source, dir string) error {
	out := filepath.Join(dir, strings.TrimSuffix(filepath.Base(source), ".c"))
	cmd := exec.CommandContext(ctx, "gcc", "-O2", "-g", "-Wall", "-o", out, source, "-lrdmacm", "-libverbs", "-lpthread")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("gcc %s: %w\n%s", filepath.Base(source), err, text)
	}
	return nil
}

func (o *options) goEnv() []string {
	cgo := "CGO_ENABLED=0"
	if o.race {
		cgo = "CGO_ENABLED=1"
	}
	return []string{cgo, "GOARCH=" + o.arch}
}

func (t *tests) goFlags() []string {
	var f []string
	if t.race {
		f = append(f, "-race")
	}
	if t.cover {
		f = append(f, "-cover", "-covermode="+t.coverMode())
	}
	if t.coverPkg != "" {
		f = append(f, "-coverpkg="+t.coverPkg)
	}
	if t.tags != "" {
		f = append(f, "-tags="+t.tags)
	}
	return f
}

func (t *tests) coverMode() string {
	if t.race {
		return "atomic"
	}
	return "set"
}

// buildTests builds the test binary of each package.
func buildTests(ctx context.Context, root, host string, o options, patterns []string) ([]item, error) {
	pkgs, err := listPackages(ctx, root, o.goEnv(), patterns)
	if err != nil {
		return nil, err
	}
	var items []item
	for i, p := range pkgs {
		rel, err := filepath.Rel(root, p.dir)
		if err != nil || strings.HasPrefix(rel, "..") {
			return nil, fmt.Errorf("package %s is not in the repository", p.path)
		}
		it := item{name: p.path}
		if !p.tests {
			it.skipped = "[no test files]"
			items = append(items, it)
			continue
		}
		name := fmt.Sprintf("%d-%s.test", i, filepath.Base(p.dir))
		args := append([]string{"test", "-c", "-o", filepath.Join(host, "tests", name)}, o.goFlags()...)
		if err := goTool(ctx, root, o.goEnv(), append(args, p.path)...); err != nil {
			return nil, fmt.Errorf("build the tests of %s: %w", p.path, err)
		}
		it.job = wire.Job{Argv: append([]string{"/host/tests/" + name}, o.testArgs(name, o.timeout)...), Dir: "/src/" + filepath.ToSlash(rel)}
		items = append(items, it)
	}
	return items, nil
}

// testArgs are the arguments of a test binary.
func (t *tests) testArgs(name string, limit time.Duration) []string {
	// A test that hangs should say where, before the job's own time is up.
	a := []string{"-test.timeout=" + (limit * 9 / 10).String(), fmt.Sprintf("-test.count=%d", t.count), "-test.paniconexit0"}
	for _, f := range []struct{ name, value string }{{"run", t.run}, {"skip", t.skip}, {"bench", t.bench}} {
		if f.value != "" {
			a = append(a, "-test."+f.name+"="+f.value)
		}
	}
	if t.verbose {
		a = append(a, "-test.v=true")
	}
	if t.short {
		a = append(a, "-test.short")
	}
	if t.cover {
		a = append(a, "-test.coverprofile=/host/cover/"+name)
	}
	return append(a, t.flags...)
}

type goPackage struct {
	path, dir string
	tests     bool
}

func listPackages(ctx context.Context, root string, env, patterns []string) ([]goPackage, error) {
	format := "{{.ImportPath}}\t{{.Dir}}\t{{if or .TestGoFiles .XTestGoFiles}}tests{{end}}"
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, patterns...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", strings.Join(patterns, " "), err)
	}
	return parsePackages(out), nil
}

func parsePackages(out []byte) []goPackage {
	var pkgs []goPackage
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		if f := strings.Split(sc.Text(), "\t"); len(f) == 3 {
			pkgs = append(pkgs, goPackage{f[0], f[1], f[2] != ""})
		}
	}
	return pkgs
}

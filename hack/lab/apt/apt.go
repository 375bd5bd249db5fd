// Package apt fetches packages of any Debian suite with an apt configuration of
// its own: nothing is installed, and the machine's own apt is left alone.
package apt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrGone says that the archive no longer has a package that its index lists.
var ErrGone = errors.New("no longer in the archive")

// Apt reads one suite, for one architecture.
type Apt struct {
	Suite, Arch string
	opts        []string
	// Progress, where set, is a terminal that shows apt's own display.
	Progress io.Writer
}

// New prepares the configuration of a suite in a folder of its own.
func New(dir, suite, arch string, src Source) (*Apt, error) {
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	list := filepath.Join(dir, "sources.list")
	if err := os.WriteFile(list, []byte(src.Line(suite)), 0o644); err != nil {
		return nil, err
	}
	a := &Apt{Suite: suite, Arch: arch, opts: []string{
		"-oAPT::Architecture=" + arch, "-oAPT::Architectures=" + arch,
		"-oDir::Etc::SourceList=" + list, "-oDir::Etc::SourceParts=/dev/null",
		"-oDir::State::Lists=" + filepath.Join(dir, "lists"), "-oDir::Cache=" + filepath.Join(dir, "cache"),
		"-oDir::State::Status=/dev/null", "-oAcquire::Languages=none",
		"-oAcquire::IndexTargets::deb::DEP-11::DefaultEnabled=false", // a desktop's descriptions of programs
	}}
	if os.Geteuid() == 0 {
		// The _apt user cannot write to root's cache; without this, a warning.
		a.opts = append(a.opts, "-oAPT::Sandbox::User=root")
	}
	return a, nil
}

// Update reads the index of the suite.
func (a *Apt) Update(ctx context.Context) error {
	// An index that cannot be had is only a warning to apt, which then works
	// with an older one or none.
	return a.show(ctx, "", "apt-get", "-oAPT::Update::Error-Mode=any", "update")
}

// Names lists the packages whose names begin with prefix.
func (a *Apt) Names(ctx context.Context, prefix string) ([]string, error) {
	out, err := a.output(ctx, "apt-cache", "pkgnames", prefix)
	return strings.Fields(out), err
}

// Package is what the index says of a package.
type Package struct {
	Name, Version string
	Size          int64 // of the download, in bytes
	Depends       []Dependency
}

// Dependency names a package, and its version where exactly one will do.
type Dependency struct{ Name, Exact string }

// Show reads packages from the index; names it does not have are left out.
func (a *Apt) Show(ctx context.Context, names ...string) ([]Package, error) {
	if len(names) == 0 {
		return nil, nil
	}
	out, err := a.output(ctx, "apt-cache", append([]string{"show", "--no-all-versions"}, names...)...)
	if err != nil {
		return nil, err
	}
	return parsePackages(out), nil
}

// Find reads one version of a package from the index. ErrGone: it is not there.
func (a *Apt) Find(ctx context.Context, name, version string) (Package, error) {
	out, err := a.output(ctx, "apt-cache", "show", name+"="+version)
	// apt-cache knows no other way to say that it found nothing.
	if err != nil && !strings.Contains(err.Error(), "No packages found") {
		return Package{}, err
	}
	if p := parsePackages(out); len(p) > 0 {
		return p[0], nil
	}
	return Package{}, fmt.Errorf("%s %s: %w", name, version, ErrGone)
}

// Resolve lists the packages that are to be there for others to work, with those:
// what an installation on a machine with nothing would bring. Each may be a name or
// name=version.
func (a *Apt) Resolve(ctx context.Context, names ...string) ([]Package, error) {
	args := []string{"-s", "-oAPT::Install-Recommends=0", "install"}
	out, err := a.output(ctx, "apt-get", append(args, names...)...)
	if err != nil {
		return nil, err
	}
	pkgs := parseSimulation(out)
	return pkgs, a.addSizes(ctx, pkgs)
}

// addSizes fills in what a simulation does not tell.
func (a *Apt) addSizes(ctx context.Context, pkgs []Package) error {
	var names []string
	for _, p := range pkgs {
		names = append(names, p.Name)
	}
	shown, err := a.Show(ctx, names...)
	size := map[string]int64{}
	for _, p := range shown {
		size[p.Name] = p.Size
	}
	for i := range pkgs {
		pkgs[i].Size = size[pkgs[i].Name] // 0: unknown
	}
	return err
}

// Download puts the files of packages into dir. ErrGone: the index is older than
// the archive.
func (a *Apt) Download(ctx context.Context, dir string, pkgs ...Package) error {
	args := []string{"download"}
	for _, p := range pkgs {
		args = append(args, p.Name+"="+p.Version)
	}
	err := a.show(ctx, dir, "apt-get", args...)
	if err != nil && strings.Contains(err.Error(), "404") {
		what := fmt.Sprintf("one of %d packages of Debian %s", len(pkgs), a.Suite)
		if len(pkgs) == 1 {
			what = pkgs[0].Name + " " + pkgs[0].Version
		}
		return fmt.Errorf("%s: %w", what, ErrGone)
	}
	return err
}

// Unpack puts the files of packages into dir. Nothing of them is run.
func Unpack(ctx context.Context, dir string, debs ...string) error {
	for _, deb := range debs {
		if err := runQuoting(exec.CommandContext(ctx, "dpkg", "-x", deb, dir)); err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
		}
	}
	return nil
}

// show runs a command that takes long: on a terminal one sees apt's progress.
func (a *Apt) show(ctx context.Context, dir, tool string, args ...string) error {
	opts := a.opts
	if a.Progress == nil {
		opts = append(opts[:len(opts):len(opts)], "-qq")
	}
	cmd := exec.CommandContext(ctx, tool, append(opts[:len(opts):len(opts)], args...)...)
	cmd.Dir = dir
	cmd.Stdout = a.Progress
	return runQuoting(cmd)
}

func (a *Apt) output(ctx context.Context, tool string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, tool, append(a.opts[:len(a.opts):len(a.opts)], args...)...)
	var out bytes.Buffer
	cmd.Stdout = &out
	err := runQuoting(cmd)
	return out.String(), err
}

// runQuoting runs cmd; its error quotes what the command said.
func runQuoting(cmd *exec.Cmd) error {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "LC_ALL=C") // it is read here, too
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

func parsePackages(text string) []Package {
	var out []Package
	for stanza := range strings.SplitSeq(text, "\n\n") {
		var p Package
		for line := range strings.Lines(stanza) {
			name, value, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
			switch name {
			case "Package":
				p.Name = value
			case "Version":
				p.Version = value
			case "Size":
				p.Size, _ = strconv.ParseInt(value, 10, 64) // 0: unknown
			case "Depends":
				p.Depends = parseDepends(value)
			}
		}
		if p.Name != "" {
			out = append(out, p)
		}
	}
	return out
}

// parseSimulation reads lines such as "Inst libc6 (2.41-12 Debian:13/stable [amd64])".
func parseSimulation(text string) []Package {
	var out []Package
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "Inst" {
			continue
		}
		if version, ok := strings.CutPrefix(f[2], "("); ok {
			out = append(out, Package{Name: f[1], Version: version})
		}
	}
	return out
}

// parseDepends takes the first of alternatives.
func parseDepends(s string) []Dependency {
	var out []Dependency
	for d := range strings.SplitSeq(s, ",") {
		first, _, _ := strings.Cut(d, "|")
		name, version, _ := strings.Cut(strings.TrimSpace(first), " (")
		name, _, _ = strings.Cut(name, ":") // an architecture
		exact := ""
		if v, ok := strings.CutPrefix(version, "= "); ok {
			exact = strings.TrimSuffix(v, ")")
		}
		out = append(out, Dependency{name, exact})
	}
	return out
}

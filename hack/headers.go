package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	debian "github.com/pureverbs/rdma/hack/lab/apt"
)

const (
	headersPackage = "linux-libc-dev"
	newestSuite    = "sid"
)

// errGone says that the mirror no longer has a version, or that there is no
// way to ask it: the headers cannot be had, which is nobody's fault.
var errGone = errors.New("kernel headers cannot be had")

// headers are kernel headers on disk.
type headers struct {
	dir     string // what goes after -I
	version string // of linux-libc-dev
}

// fetchHeaders gets the kernel headers of a Debian suite into the cache. It uses
// an apt configuration of its own and installs nothing. With version "" it takes
// the suite's newest.
func fetchHeaders(suite, version string) (headers, error) {
	cache, err := cacheDir()
	if err != nil {
		return headers{}, err
	}
	if version != "" {
		if h, ok := cachedHeaders(cache, version); ok {
			return h, nil
		}
	}
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg"} {
		if _, err := exec.LookPath(tool); err != nil {
			return headers{}, fmt.Errorf("%w: no %s here, they are taken from Debian packages", errGone, tool)
		}
	}
	a, err := newApt(cache, suite)
	if err != nil {
		return headers{}, err
	}
	if err := a.update(); err != nil {
		return headers{}, fmt.Errorf("%w: %w", errGone, err)
	}
	newest, err := a.candidate()
	if err != nil {
		return headers{}, err
	}
	if version == "" {
		version = newest
	}
	if h, ok := cachedHeaders(cache, version); ok {
		return h, nil
	}
	if err := a.download(cache, version); err != nil {
		return headers{}, fmt.Errorf("%w: %s now has %s: %w", errGone, suite, newest, err)
	}
	h, ok := cachedHeaders(cache, version)
	if !ok {
		return h, fmt.Errorf("%s %s holds no RDMA headers", headersPackage, version)
	}
	return h, nil
}

func cacheDir() (string, error) {
	base, err := os.UserCacheDir() // XDG_CACHE_HOME, else ~/.cache
	return filepath.Join(base, "pureverbs", "headers"), err
}

func cachedHeaders(cache, version string) (headers, bool) {
	h := headers{filepath.Join(cache, version, "usr", "include"), version}
	_, err := os.Stat(filepath.Join(h.dir, "rdma", "ib_user_verbs.h"))
	return h, err == nil
}

// apt runs apt-get with its own sources, lists and cache.
type apt struct {
	suite string
	opts  []string
}

func newApt(cache, suite string) (*apt, error) {
	archive, err := debian.Debian("/")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	dir := filepath.Join(cache, "apt-"+suite)
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	list := filepath.Join(dir, "sources.list")
	if err := os.WriteFile(list, []byte(archive.Line(suite)), 0o644); err != nil {
		return nil, err
	}
	a := &apt{suite, []string{
		"-oDir::Etc::SourceList=" + list, "-oDir::Etc::SourceParts=/dev/null",
		"-oDir::State::Lists=" + filepath.Join(dir, "lists"), "-oDir::Cache=" + filepath.Join(dir, "cache"),
		"-oDir::State::Status=/dev/null", "-oAcquire::Languages=none", "-qq",
	}}
	if os.Geteuid() == 0 {
		// The _apt user cannot write to root's cache; without this, a warning.
		a.opts = append(a.opts, "-oAPT::Sandbox::User=root")
	}
	return a, nil
}

func (a *apt) run(dir, tool string, args ...string) (string, error) {
	cmd := exec.Command(tool, append(append([]string{}, a.opts...), args...)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", tool, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

func (a *apt) update() error {
	fmt.Fprintf(os.Stderr, "gen-abi: reading the package index of Debian %s\n", a.suite)
	_, err := a.run("", "apt-get", "update")
	return err
}

// candidate is the suite's newest version.
func (a *apt) candidate() (string, error) {
	out, err := a.run("", "apt-cache", "policy", headersPackage)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "Candidate: "); ok && v != "(none)" {
			return v, nil
		}
	}
	return "", fmt.Errorf("%w: no %s in Debian %s", errGone, headersPackage, a.suite)
}

// download unpacks one version into the cache.
func (a *apt) download(cache, version string) error {
	tmp, err := os.MkdirTemp(cache, "deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	fmt.Fprintf(os.Stderr, "gen-abi: downloading %s %s\n", headersPackage, version)
	if _, err := a.run(tmp, "apt-get", "download", headersPackage+"="+version); err != nil {
		return err
	}
	debs, _ := filepath.Glob(filepath.Join(tmp, "*.deb")) // the pattern is well-formed
	if len(debs) != 1 {
		return fmt.Errorf("apt-get left %d packages", len(debs))
	}
	if out, err := exec.Command("dpkg", "-x", debs[0], filepath.Join(tmp, "x")).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w: %s", debs[0], err, out)
	}
	return os.Rename(filepath.Join(tmp, "x"), filepath.Join(cache, version))
}

func runHeaders(args []string, stdout io.Writer) error {
	fl := flag.NewFlagSet("headers", flag.ContinueOnError)
	suite := fl.String("suite", newestSuite, "Debian `suite`")
	version := fl.String("version", "", "package version; \"pinned\" is that of uapi.json (default: the newest)")
	cflags := fl.Bool("cflags", false, "print the options a C compiler needs, not the directory")
	if err := fl.Parse(args); err != nil {
		return err
	}
	if *version == "pinned" {
		f, err := readFacts("uapi.json")
		if err != nil {
			return err
		}
		*version = f.Version
	}
	h, err := fetchHeaders(*suite, *version)
	if err != nil {
		return err
	}
	if *cflags {
		fmt.Fprintf(stdout, "-nostdinc -isystem %s -isystem %s\n", h.dir, filepath.Join(h.dir, arches[hostArch()].triplet))
		return nil
	}
	fmt.Fprintln(stdout, h.dir)
	return nil
}

//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pureverbs/rdma/hack/lab/boot"
	"github.com/pureverbs/rdma/hack/lab/kernel"
)

// options are the flags of all commands; parseOptions offers each command its own.
type options struct {
	kernels []kernel.Suite
	refresh bool // look for newer kernels

	device   string
	noModule bool
	smp      int
	memory   string
	icount   bool
	timeout  time.Duration
	console  string // file to keep what the guest's kernel said
	words    string // for the kernel's command line

	tests
	share string // folder for /host
	tty   bool

	args []string
}

// tests are the flags of run that shape Go tests.
type tests struct {
	run, skip, bench string
	verbose, short   bool
	count            int
	flags            list // passed on to the test binaries as they are
	race             bool
	cover            bool
	coverProfile     string
	coverPkg         string
	tags             string
	commands         list // Go commands to build into /host/bin
	files            list // copied into /host/bin
	sources          list // of C programs, compiled into /host/bin
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func parseOptions(command string, args []string, errOut io.Writer) (options, error) {
	o := options{}
	fs := flag.NewFlagSet("lab "+command, flag.ContinueOnError)
	fs.SetOutput(errOut)
	kernelName := fs.String("kernel", "6.1", "kernel to boot: 5.10, 6.1, 6.12, newest or all")
	noDevice := fs.Bool("no-device", false, "boot without RDMA devices (the drivers are loaded)")
	if command != "prepare" {
		o.guestFlags(fs)
	}
	switch command {
	case "prepare":
		fs.BoolVar(&o.refresh, "refresh", false, "look for newer kernels, also if one is there")
	case "run":
		o.tests.register(fs)
	case "exec":
		fs.StringVar(&o.share, "share", "", "`folder` that the guest sees as /host (default: an empty one)")
		fs.BoolVar(&o.tty, "tty", false, "give the command a terminal, if there is one here")
	}
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.args = fs.Args()
	if *noDevice {
		o.device = "none"
	}
	err := o.check(command, *kernelName)
	if err != nil {
		fmt.Fprintf(errOut, "lab %s: %v\n", command, err)
	}
	return o, err
}

func (o *options) guestFlags(fs *flag.FlagSet) {
	limit := map[string]time.Duration{"lab run": 5 * time.Minute, "lab exec": 10 * time.Minute, "lab shell": 8 * time.Hour}
	fs.StringVar(&o.device, "device", "rxe", "RDMA devices to make: rxe or none")
	fs.BoolVar(&o.noModule, "no-module", false, "boot without RDMA drivers")
	fs.IntVar(&o.smp, "smp", 2, "number of CPUs")
	fs.StringVar(&o.memory, "mem", "512M", "memory, with a unit")
	fs.BoolVar(&o.icount, "icount", false, "the guest's clock counts instructions, on one CPU: for measurements")
	fs.DurationVar(&o.timeout, "timeout", limit[fs.Name()], "time limit of a job")
	fs.StringVar(&o.words, "append", "", "`words` for the kernel's command line")
	fs.StringVar(&o.console, "console", "", "`file` to write what the guest's kernel says to")
}

func (t *tests) register(fs *flag.FlagSet) {
	fs.StringVar(&t.run, "run", "", "tests to run, as go test's")
	fs.StringVar(&t.skip, "skip", "", "tests to skip, as go test's")
	fs.StringVar(&t.bench, "bench", "", "benchmarks to run, as go test's")
	fs.IntVar(&t.count, "count", 1, "number of times")
	fs.BoolVar(&t.verbose, "v", false, "show every test")
	fs.BoolVar(&t.short, "short", false, "as go test's")
	fs.Var(&t.flags, "testflag", "`flag` for the test binary, such as -test.benchtime=100x (repeatable)")
	fs.BoolVar(&t.race, "race", false, "with the race detector (cgo, on this machine's libc)")
	fs.BoolVar(&t.cover, "cover", false, "measure coverage")
	fs.StringVar(&t.coverProfile, "coverprofile", "", "`file` for the coverage of all packages; implies -cover")
	fs.StringVar(&t.coverPkg, "coverpkg", "", "packages to cover, as go test's")
	fs.StringVar(&t.tags, "tags", "", "build tags")
	fs.Var(&t.commands, "bin", "Go `command` to build for the guest's PATH, such as ./cmd/rdma-ping (repeatable)")
	fs.Var(&t.sources, "cc", "C `source` to compile for the guest's PATH, with librdmacm and libibverbs (repeatable)")
	fs.Var(&t.files, "file", "executable `file` to copy to the guest's PATH (repeatable)")
}

func (o *options) check(command, kernelName string) (err error) {
	if o.kernels, err = kernel.Select(kernelName); err != nil {
		return err
	}
	if command == "prepare" {
		return nil
	}
	if o.device == "siw" {
		return errors.New("-device siw: Debian's kernels come without siw, and the lab does not build it yet")
	}
	if o.device != "rxe" && o.device != "none" {
		return fmt.Errorf("no device %q; there are rxe and none", o.device)
	}
	if o.icount {
		o.smp = 1
	}
	if o.timeout <= 0 || o.smp < 1 {
		return errors.New("-timeout and -smp must be above zero")
	}
	if o.coverProfile != "" {
		o.cover = true
	}
	switch {
	case command != "run" && len(o.kernels) > 1:
		return fmt.Errorf("-kernel %s: one kernel at a time", kernelName)
	case command == "exec" && len(o.args) == 0:
		return errors.New("which command?")
	case command == "run" && len(o.args) == 0:
		return errors.New("which packages or files?")
	}
	return nil
}

// plan is what the guest is to be made of.
func (o *options) plan() boot.Plan {
	p := boot.Plan{Groups: []string{"net"}, Shares: []string{"host", "src"}}
	if o.noModule {
		return p
	}
	p.Groups = append(p.Groups, "rxe")
	if o.device == "rxe" {
		p.Links = []boot.Link{{Name: "rxe0", Type: "rxe", NetDev: "dum0"}, {Name: "rxea", Type: "rxe", NetDev: "va"}, {Name: "rxeb", Type: "rxe", NetDev: "vb"}}
	}
	return p
}

// environment tells the jobs where they run.
func (o *options) environment(k kernel.Suite) []string {
	env := []string{"RDMA_LAB=1", "RDMA_LAB_KERNEL=" + k.Kernel, "RDMA_LAB_DEVICE=" + o.device,
		"RDMA_LAB_DEVICES=" + strings.Join(o.plan().Devices(), ",")}
	if len(o.plan().Links) > 0 {
		// A test that finds no device has failed here.
		env = append(env, "RDMA_TEST_REQUIRE=1")
	}
	if o.icount {
		env = append(env, "RDMA_LAB_ICOUNT=1")
	}
	return env
}

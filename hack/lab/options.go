//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pureverbs/rdma/hack/lab/boot"
	"github.com/pureverbs/rdma/hack/lab/kernel"
)

// options are the flags of all commands; parseOptions offers each command its own.
type options struct {
	arch    string
	kernels []kernel.Suite
	devices []string // kinds of RDMA devices, a guest for each
	refresh bool     // look for newer kernels

	device   string // the one of devices that a guest is made with
	noModule bool
	smp      int
	memory   string
	icount   bool
	timeout  time.Duration
	console  string // file to keep what the guest's kernel said
	words    string // for the kernel's command line
	env      list   // for jobs

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
	fs.StringVar(&o.arch, "arch", hostArch, "architecture of the guest: "+strings.Join(kernel.Architectures(), ", "))
	kernelName := fs.String("kernel", "", "kernel to boot: 5.10, 6.1, 6.12, newest or all (default 6.1, elsewhere than on amd64 6.12)")
	device := fs.String("device", "rxe", "RDMA devices to make: rxe, siw, all (one after the other) or none")
	noDevice := fs.Bool("no-device", false, "as -device none: the drivers are loaded")
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
		*device = "none"
	}
	err := o.choose(*kernelName, *device)
	if err == nil {
		err = o.check(command)
	}
	if err != nil {
		fmt.Fprintf(errOut, "lab %s: %v\n", command, err)
	}
	return o, err
}

func (o *options) guestFlags(fs *flag.FlagSet) {
	limit := map[string]time.Duration{"lab run": 5 * time.Minute, "lab exec": 10 * time.Minute, "lab shell": 8 * time.Hour}
	fs.BoolVar(&o.noModule, "no-module", false, "boot without RDMA drivers")
	fs.IntVar(&o.smp, "smp", 2, "number of CPUs")
	fs.StringVar(&o.memory, "mem", "512M", "memory, with a unit")
	fs.BoolVar(&o.icount, "icount", false, "the guest's clock counts instructions, on one CPU: for measurements")
	fs.DurationVar(&o.timeout, "timeout", limit[fs.Name()], "time limit of a job")
	fs.Var(&o.env, "env", "`NAME=value` for the job's environment (repeatable)")
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

// choose finds the kinds of guests by what they are called.
func (o *options) choose(kernelName, device string) (err error) {
	if o.kernels, err = kernel.Select(o.arch, kernelName); err != nil {
		return err
	}
	switch {
	case device == "siw" && o.arch != hostArch:
		return errors.New("-device siw: it is built for " + hostArch + " only")
	case device == "all" && o.arch == hostArch:
		o.devices = []string{"rxe", "siw"}
	case device == "all":
		o.devices = []string{"rxe"}
	case device == "rxe", device == "siw", device == "none":
		o.devices = []string{device}
	default:
		return fmt.Errorf("no device %q; there are rxe, siw, all and none", device)
	}
	o.device = o.devices[0]
	return nil
}

// on is the options for one kind of guest.
func (o options) on(c cell) options {
	o.device = c.device
	return o
}

func (o *options) check(command string) error {
	if command == "prepare" {
		return nil
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
	case command != "run" && len(o.cells()) > 1:
		return errors.New("one kernel and one kind of device at a time")
	case o.arch != hostArch && (o.race || len(o.sources) > 0):
		return fmt.Errorf("-arch %s: neither -race nor -cc: there is no C compiler for it here", o.arch)
	case command == "exec" && len(o.args) == 0:
		return errors.New("which command?")
	case slices.ContainsFunc(o.env, func(e string) bool { return strings.Index(e, "=") < 1 }):
		return errors.New("-env takes NAME=value")
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
	driver := o.device
	if driver == "none" {
		driver = "rxe" // to make devices with, for who wants to
	}
	p.Groups = append(p.Groups, "rdma", driver)
	if o.device != "none" {
		p.Links = []boot.Link{
			{Name: driver + "0", Type: driver, NetDev: "dum0"},
			{Name: driver + "a", Type: driver, NetDev: "va"},
			{Name: driver + "b", Type: driver, NetDev: "vb"},
		}
	}
	return p
}

// where names a kind of guest for people.
func (o *options) where(k kernel.Suite) string {
	s := "kernel " + k.Kernel
	if k.Arch != hostArch {
		s += " " + k.Flavour
	}
	if o.device != "rxe" {
		s += ", " + o.device
	}
	return s
}

// environment tells the jobs where they run.
func (o *options) environment(k kernel.Suite) []string {
	env := []string{"RDMA_LAB=1", "RDMA_LAB_KERNEL=" + k.Kernel, "RDMA_LAB_ARCH=" + k.Arch, "RDMA_LAB_DEVICE=" + o.device,
		"RDMA_LAB_DEVICES=" + strings.Join(o.plan().Devices(), ",")}
	if len(o.plan().Links) > 0 {
		// A test that finds no device has failed here.
		env = append(env, "RDMA_TEST_REQUIRE=1")
	}
	if o.icount {
		env = append(env, "RDMA_LAB_ICOUNT=1")
	}
	return append(env, o.env...)
}

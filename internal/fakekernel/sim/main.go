//go:build linux && (amd64 || arm64)

package sim

import (
	"flag"
	"fmt"
	"net/netip"
	"os"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
)

// flags are what the command line says.
type flags struct {
	*flag.FlagSet
	device  fakekernel.Device
	kernel  string
	trace   string
	verbose bool
}

func newFlags() *flags {
	f := &flags{FlagSet: flag.NewFlagSet("mlx5sim", flag.ContinueOnError)}
	f.device = fakekernel.Device{
		Driver: abi.RDMA_DRIVER_MLX5, V1: true, MTU: 5, NetDev: "lo", IfIndex: 1, Addrs: addresses(),
	}
	m := &f.device.MLX5
	f.BoolVar(&f.verbose, "v", false, "tell on standard error what is answered, and what is left at the end")
	f.BoolVar(&m.NoExec, "noexec", false, "do not hear doorbells: nothing but the program runs")
	f.BoolVar(&m.StaticUARs, "static-uars", false, "registers come with the context, as before Linux 5.7")
	f.BoolVar(&m.CQEVersion0, "cqe0", false, "completions name queue pairs by number")
	f.BoolVar(&m.NoBlueFlame, "no-blueflame", false, "registers do not take whole requests")
	f.IntVar(&m.PageSize, "page-size", 0, "the system's page size as the device's answers tell, in `bytes`")
	f.StringVar(&f.kernel, "kernel", "6.12", "the `version` of Linux whose driver it is")
	f.StringVar(&f.trace, "trace", "", "write what the program does to the device to this `file`")
	f.Usage = func() {
		fmt.Fprintln(f.Output(), "usage: mlx5sim [flags] program [arguments]")
		f.PrintDefaults()
	}
	return f
}

// addresses are the GIDs of the device: those of the loopback interface, over which programs
// on one machine meet anyway, after one that is link-local as hardware has it.
func addresses() []netip.Addr {
	return []netip.Addr{
		netip.MustParseAddr("fe80::a:1"), netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback(),
	}
}

// Main is the command mlx5sim: see tests/mlx5sim. It returns the exit status.
func Main(args []string) int {
	f := newFlags()
	switch err := f.Parse(args); {
	case err == flag.ErrHelp:
		return 0
	case err != nil:
		return statusUsage
	case f.NArg() == 0:
		f.Usage()
		return statusUsage
	}
	o := Options{Kernel: fakekernel.Options{Devices: []fakekernel.Device{f.device}, Kernel: f.kernel}}
	if f.verbose {
		o.Log = os.Stderr
	}
	if f.trace != "" {
		trace, err := os.Create(f.trace)
		if err != nil {
			fmt.Fprintln(os.Stderr, "mlx5sim:", err)
			return statusUsage
		}
		defer trace.Close()
		o.Kernel.Trace = trace
	}
	status, err := Run(o, f.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mlx5sim:", err)
	}
	return status
}

// Command run carries oracle scenarios out by this library, on the first RDMA device that
// the system has: a simulated one, whose supervisor writes a trace.
//
//	mlx5sim -noexec -trace FILE run [-no-blueflame] SCENARIOS
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"

	"github.com/pureverbs/rdma/tests/oracle"
	"github.com/pureverbs/rdma/uverbs"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	off := flags.Bool("no-blueflame", false, "do not copy requests into registers")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("usage: run [-no-blueflame] SCENARIOS")
	}
	text, err := os.Open(flags.Arg(0))
	if err != nil {
		return err
	}
	defer text.Close()
	devices, err := uverbs.Devices()
	if err != nil {
		return err
	}
	if len(devices) == 0 {
		return errors.New("no device")
	}
	devices[0].NoBlueFlame = *off
	arena, err := oracle.NewArena()
	if err != nil {
		return err
	}
	r := oracle.Runner{Device: devices[0], Arena: arena, Mark: mark, Bells: oracle.FaultFD()}
	return r.Run(text)
}

// mark says something to the supervisor, which takes it by an error.
func mark(text string) error {
	f, err := os.Open("/dev/infiniband/mark/" + text)
	if err == nil {
		return f.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

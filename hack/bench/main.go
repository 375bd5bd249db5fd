// Command bench compares the cost of this module with that of the C stack, C and Go in turn,
// several rounds. It prints rows "KIND NAME VALUE LOW HIGH": Go over C, so that below 1 is
// better.
//
//	bench [flags] [lab|clock|mlx5] ...
//
// "lab" is a boot of the lab for each device, rxe and siw, whose clock counts instructions: rows
// "ratio". VALUE is the ratio of the medians, LOW and HIGH are the least and the greatest ratio
// of a round.
//
// "clock" is a boot of each with an ordinary clock, on two CPUs, for what waits for events: rows
// "clock". VALUE is the median of the rounds' ratios, LOW and HIGH are their quartiles: single
// rounds of an emulated machine are noise.
//
// "mlx5" runs here, on the simulated device while it is off, and measures time: rows "ratio".
// VALUE is the median of the rounds' ratios, LOW and HIGH are the least and the greatest. Rows
// "ratio-cgo" stand for the same loops in Go through cgo. Names that end in -min are of the least
// time of a round, all others of its median.
//
// Without an argument it is all of them.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
)

func main() {
	rounds := flag.Int("rounds", 5, "lab: rounds of each program")
	iters := flag.Int("iters", 2000, "lab: iterations of a round")
	kernel := flag.String("kernel", "6.1", "lab, clock: kernel to boot")
	spells := flag.Int("spells", 25, "clock: rounds of each program")
	short := flag.Int("short", 200, "clock: iterations of a round")
	turns := flag.Int("turns", 15, "mlx5: rounds of each program")
	batches := flag.Int("batches", 1000, "mlx5: batches of 64 operations in a round")
	flag.Parse()
	parts := map[string]func(dir string) error{
		"lab":   func(dir string) error { return boots(dir, *kernel, counted(*rounds, *iters)) },
		"clock": func(dir string) error { return boots(dir, *kernel, timed(*spells, *short)) },
		"mlx5":  func(dir string) error { return mlx5(dir, *turns, *batches) },
	}
	names := flag.Args()
	if len(names) == 0 {
		names = []string{"lab", "clock", "mlx5"}
	}
	for _, name := range names {
		if parts[name] == nil {
			flag.Usage()
			os.Exit(2)
		}
		if err := in(parts[name]); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

// in runs a part in a folder of its own.
func in(part func(dir string) error) error {
	dir, err := os.MkdirTemp("", "pureverbs-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return part(dir)
}

// command runs a program without cgo, unless env says otherwise.
func command(env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// Command bench compares the cost of this module with that of the C stack, C and Go in turn,
// several rounds. It prints rows "ratio NAME VALUE LOW HIGH": Go over C, so that below 1 is
// better; LOW and HIGH are the least and the greatest ratio of a round.
//
//	bench [flags] [lab|mlx5]
//
// "lab" is one boot of the lab whose clock counts instructions, and VALUE the ratio of the
// medians. "mlx5" runs here, on the simulated device while it is off, and measures time; VALUE
// is the median of the rounds' ratios, and rows "ratio-cgo" stand for the same loops in Go
// through cgo. Names that end in -min are of the least time of a round, all others of its
// median. Without an argument it is both.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed job.sh
var job string

func main() {
	rounds := flag.Int("rounds", 5, "lab: rounds of each program")
	iters := flag.Int("iters", 3000, "lab: iterations of a round")
	kernel := flag.String("kernel", "6.1", "lab: kernel to boot")
	turns := flag.Int("turns", 15, "mlx5: rounds of each program")
	batches := flag.Int("batches", 1000, "mlx5: batches of 64 operations in a round")
	flag.Parse()
	parts := map[string]func(dir string) error{
		"lab":  func(dir string) error { return lab(dir, *rounds, *iters, *kernel) },
		"mlx5": func(dir string) error { return mlx5(dir, *turns, *batches) },
	}
	names := flag.Args()
	if len(names) == 0 {
		names = []string{"lab", "mlx5"}
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

func lab(share string, rounds, iters int, kernel string) error {
	for _, pkg := range []string{"./cmd/rdma-ping", "./tests/pingpong", "./tests/cmpeer/gocmtime"} {
		if err := build(share, pkg); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(share, "job.sh"), []byte(job), 0o644); err != nil {
		return err
	}
	script := fmt.Sprintf("ROUNDS=%d ITERS=%d; . /host/job.sh", rounds, iters)
	lab := exec.Command("go", "run", "./lab", "exec", "-icount", "-kernel", kernel, "-share", share, "-timeout", "30m",
		"--", "sh", "-c", script)
	lab.Stderr = os.Stderr
	out, err := lab.StdoutPipe()
	if err != nil {
		return err
	}
	if err := lab.Start(); err != nil {
		return err
	}
	s := samples{}
	s.collect(out, os.Stderr)
	if err := lab.Wait(); err != nil {
		return fmt.Errorf("job in the lab: %w", err)
	}
	return s.report(os.Stdout, ofMedians)
}

func build(dir, pkg string) error {
	return command(nil, "go", "-C", "..", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/", pkg)
}

// command runs a program without cgo, unless env says otherwise.
func command(env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

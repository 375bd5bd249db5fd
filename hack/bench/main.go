// Command bench compares the cost of this module with that of the C stack, in one boot of
// the lab whose clock counts instructions: C and Go in turn, several rounds, medians. It
// prints rows "ratio NAME VALUE LOW HIGH": Go over C, so that below 1 is better; LOW and
// HIGH are the least and the greatest ratio of a round.
package main

import (
	"bufio"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

//go:embed job.sh
var job string

func main() {
	rounds := flag.Int("rounds", 5, "rounds of each program")
	iters := flag.Int("iters", 3000, "iterations of a round")
	kernel := flag.String("kernel", "6.1", "kernel to boot")
	flag.Parse()
	if err := run(*rounds, *iters, *kernel); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(rounds, iters int, kernel string) error {
	share, err := os.MkdirTemp("", "pureverbs-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(share)
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
	s := collect(out)
	if err := lab.Wait(); err != nil {
		return fmt.Errorf("job in the lab: %w", err)
	}
	return s.report(os.Stdout)
}

func build(dir, pkg string) error {
	cmd := exec.Command("go", "-C", "..", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/", pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// samples holds the values by name and by who ran: "c" or "go".
type samples map[string]map[string][]float64

// collect reads "sample NAME WHO VALUE" lines and passes all others on.
func collect(r io.Reader) samples {
	s := samples{}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) != 4 || f[0] != "sample" {
			fmt.Fprintln(os.Stderr, lines.Text())
			continue
		}
		v, err := strconv.ParseFloat(f[3], 64)
		if err != nil {
			fmt.Fprintln(os.Stderr, lines.Text())
			continue
		}
		if s[f[1]] == nil {
			s[f[1]] = map[string][]float64{}
		}
		s[f[1]][f[2]] = append(s[f[1]][f[2]], v)
	}
	return s
}

func (s samples) report(w io.Writer) error {
	if len(s) == 0 {
		return fmt.Errorf("the job gave no sample")
	}
	names := make([]string, 0, len(s))
	for name := range s {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		c, g := s[name]["c"], s[name]["go"]
		if len(c) == 0 || len(c) != len(g) {
			return fmt.Errorf("%s: %d samples of C, %d of Go", name, len(c), len(g))
		}
		ratios := make([]float64, len(c))
		for i := range c {
			ratios[i] = g[i] / c[i]
		}
		fmt.Fprintf(w, "cost %s c %.1f go %.1f (%s, medians of %d; least %.1f and %.1f)\n",
			name, median(c), median(g), unit(name), len(c), slices.Min(c), slices.Min(g))
		fmt.Fprintf(w, "ratio %s %.3f %.3f %.3f\n", name, median(g)/median(c), slices.Min(ratios), slices.Max(ratios))
	}
	return nil
}

// unit is what the values of that name are in. The clock's microseconds are thousand
// instructions.
func unit(name string) string {
	if strings.HasSuffix(name, "-kB") {
		return "kB of the client a connection"
	}
	return "thousand instructions an iteration"
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

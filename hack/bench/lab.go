package main

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed *.sh
var scripts embed.FS

// job is what runs in a boot of the lab.
type job struct {
	script        string
	rounds, iters int
	flags         []string // of the lab
	table         table
}

// counted is the job whose clock counts instructions.
func counted(rounds, iters int) job {
	return job{"lab.sh", rounds, iters, []string{"-icount"}, table{kind: "ratio", value: ofMedians, spread: extremes, unit: instructions}}
}

// timed is the job with the ordinary clock.
func timed(rounds, iters int) job {
	return job{"clock.sh", rounds, iters, nil, table{kind: "clock", value: ofRatios, spread: quartiles, unit: microseconds}}
}

// boots runs a job on each device.
func boots(share, kernel string, j job) error {
	if err := fill(share); err != nil {
		return err
	}
	for _, device := range []string{"rxe", "siw"} {
		s := samples{}
		if err := j.boot(share, kernel, device, s); err != nil {
			return fmt.Errorf("%s: %w", device, err)
		}
		if err := j.table.report(os.Stdout, s); err != nil {
			return fmt.Errorf("%s: %w", device, err)
		}
	}
	return nil
}

// fill puts the scripts and the programs into the folder that the guest sees.
func fill(share string) error {
	if err := os.CopyFS(share, scripts); err != nil {
		return err
	}
	for _, pkg := range []string{"./cmd/rdma-ping", "./tests/pingpong", "./tests/cmpeer/gocmtime", "./tests/onebench"} {
		if err := command(nil, "go", "-C", "..", "build", "-trimpath", "-ldflags=-s -w", "-o", share+"/", pkg); err != nil {
			return err
		}
	}
	if err := compile(filepath.Join(share, "spent"), "../tests/c/spent.c"); err != nil {
		return err
	}
	return compile(filepath.Join(share, "onebench-c"), "../tests/c/onebench.c", "-lrdmacm", "-libverbs")
}

func (j *job) boot(share, kernel, device string, s samples) error {
	args := append([]string{"run", "./lab", "exec"}, j.flags...)
	args = append(args, "-device", device, "-kernel", kernel, "-share", share, "-timeout", "30m", "--", "sh", "-c",
		fmt.Sprintf("rounds=%d iters=%d; . /host/%s", j.rounds, j.iters, j.script))
	lab := exec.Command("go", args...)
	lab.Stderr = os.Stderr
	out, err := lab.StdoutPipe()
	if err != nil {
		return err
	}
	if err := lab.Start(); err != nil {
		return err
	}
	s.collect(out, os.Stderr)
	if err := lab.Wait(); err != nil {
		return fmt.Errorf("job in the lab: %w", err)
	}
	return nil
}

// compile makes a C program.
func compile(out, source string, libraries ...string) error {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	if err := command(nil, cc, append([]string{"-O2", "-Wall", "-o", out, source}, libraries...)...); err != nil {
		return fmt.Errorf("%w; on Debian it needs: apt-get install gcc libc6-dev libibverbs-dev librdmacm-dev ibverbs-providers", err)
	}
	return nil
}

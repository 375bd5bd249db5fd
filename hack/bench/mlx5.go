package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// mlx5 measures posting and polling on the simulated device while it is off: libmlx5, this
// module, and libmlx5 through cgo, with and without locks.
func mlx5(dir string, turns, batches int) error {
	if err := buildMLX5(dir); err != nil {
		return err
	}
	s := samples{}
	n := strconv.Itoa(batches)
	for range turns {
		for _, locks := range []string{"MLX5_SINGLE_THREADED=", "MLX5_SINGLE_THREADED=1"} {
			for _, program := range [][]string{
				{"mlx5bench", n}, {"uverbs.test", "-test.run=TestMLX5Cost"}, {"cgobench", n},
			} {
				if err := s.run(dir, program, locks, "RDMA_MLX5_BENCH="+n); err != nil {
					return err
				}
			}
		}
	}
	t := table{kind: "ratio", value: ofRatios, spread: extremes, unit: nanoseconds}
	return t.report(os.Stdout, s)
}

func buildMLX5(dir string) error {
	if err := command(nil, "go", "-C", "..", "build", "-o", dir+"/", "./tests/mlx5sim"); err != nil {
		return err
	}
	if err := command(nil, "go", "-C", "..", "test", "-c", "-o", dir+"/", "./uverbs"); err != nil {
		return err
	}
	if err := compile(filepath.Join(dir, "mlx5bench"), "../tests/c/mlx5bench.c", "-lmlx5", "-libverbs"); err != nil {
		return err
	}
	return command([]string{"CGO_ENABLED=1"}, "go", "-C", "../tests/c/cgobench", "build", "-o", dir+"/", ".")
}

// run runs a program under the launcher and keeps its samples.
func (s samples) run(dir string, program []string, env ...string) error {
	cmd := exec.Command(filepath.Join(dir, "mlx5sim"), append([]string{"-noexec", filepath.Join(dir, program[0])}, program[1:]...)...)
	cmd.Env = append(os.Environ(), env...)
	var out, others bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &others
	err := cmd.Run()
	s.collect(&out, &others)
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", program[0], err, &others)
	}
	return nil
}

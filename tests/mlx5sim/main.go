//go:build linux && (amd64 || arm64)

// Command mlx5sim runs a program, C or Go, on a simulated mlx5 device: see
// docs/simulated-mlx5.md. It ends with the program's exit status, or with 125 where this machine
// does not let it.
//
//	mlx5sim [flags] program [arguments]
//	go test -exec 'PATH/mlx5sim' ./uverbs
package main

import (
	"os"

	"github.com/pureverbs/rdma/internal/fakekernel/sim"
)

func main() {
	sim.Launched()
	os.Exit(sim.Main(os.Args[1:]))
}

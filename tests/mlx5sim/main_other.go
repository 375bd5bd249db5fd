//go:build !linux || !(amd64 || arm64)

// Command mlx5sim runs a program on a simulated mlx5 device: see docs/simulated-mlx5.md.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "mlx5sim: refused here: start: needs Linux on amd64 or arm64")
	os.Exit(125)
}

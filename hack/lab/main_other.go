//go:build !linux

// Lab boots virtual machines with the RDMA drivers of real kernels. See README.md.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "lab: needs a Debian machine, with Linux")
	os.Exit(2)
}

// Package profile is the flag -cpuprofile of the programs that are compared with C.
package profile

import (
	"os"
	"runtime/pprof"
)

// Run calls f and writes a CPU profile of that to file, or none if file is "".
func Run(file string, f func() error) error {
	if file == "" {
		return f()
	}
	w, err := os.Create(file)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := pprof.StartCPUProfile(w); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return f()
}

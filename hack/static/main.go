// Command static fails unless an ELF program needs nothing on the machine it runs on:
// neither a dynamic loader nor a shared library.
package main

import (
	"debug/elf"
	"fmt"
	"os"
	"strings"
)

func main() {
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Fprintf(os.Stderr, "static: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

func check(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("it asks for a dynamic loader")
		}
	}
	libs, err := f.ImportedLibraries() // none, and no error, without a dynamic section
	if err == nil && len(libs) > 0 {
		err = fmt.Errorf("it needs %s", strings.Join(libs, ", "))
	}
	return err
}

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// parameters of modules, by file.
var parameters = map[string]string{
	"dummy.ko": "numdummies=0", // no interface that nobody asked for
}

// loadModules loads modules, one path a line, in the order given.
func loadModules(list string) error {
	for p := range strings.FieldsSeq(list) {
		if err := loadModule("/" + p); err != nil {
			return fmt.Errorf("load module %s: %w", p, err)
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.FinitModule(int(f.Fd()), parameters[filepath.Base(path)], 0)
	if errors.Is(err, unix.EEXIST) { // another group has it too
		return nil
	}
	return err
}

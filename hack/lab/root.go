//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// findRoot finds the repository that the current folder belongs to.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "hack", "lab", "init")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%s is not inside the repository", dir)
		}
	}
}

// under gives the path that a user means: relative names are taken from the
// repository's root, wherever one stands (go -C hack run stands in hack).
func under(root, p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(root, p)
}

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// list is all targets, of the command line and of the file, in their order.
func (e *exporterOptions) list(args []string) (targets []string, err error) {
	for _, text := range args {
		if targets, err = addTarget(targets, text); err != nil {
			return nil, err
		}
	}
	if e.targets != "" {
		if targets, err = e.read(targets); err != nil {
			return nil, err
		}
	}
	if len(targets) == 0 {
		return nil, usagef("no address: whom to ping?")
	}
	return targets, nil
}

// read adds the targets of the file.
func (e *exporterOptions) read(targets []string) ([]string, error) {
	b, err := os.ReadFile(e.targets)
	if err != nil {
		return nil, fmt.Errorf("--targets: %w", err)
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		text, _, _ := strings.Cut(line, "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if targets, err = addTarget(targets, text); err != nil {
			return nil, usagef("%s, line %d: %w", e.targets, n, err)
		}
	}
	return targets, nil
}

// addTarget adds an address that could be one. Each may be there once: it is a label.
func addTarget(targets []string, text string) ([]string, error) {
	if slices.Contains(targets, text) {
		return nil, usagef("%s is there twice", text)
	}
	if !utf8.ValidString(text) { // a label has to be
		return nil, usagef("address %q: neither an IP address nor a host name", text)
	}
	_, _, err := parseAddr(text, defaultPort)
	return append(targets, text), err
}

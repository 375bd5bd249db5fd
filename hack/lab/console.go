//go:build linux

package main

import (
	"regexp"
	"strings"
)

// tail gives the last n lines.
func tail(s string, n int) string {
	lines := strings.SplitAfter(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// complaint matches what a kernel says when something is wrong with it.
var complaint = regexp.MustCompile(`BUG: |Oops: |WARNING: |general protection fault|Kernel panic|UBSAN: |refcount_t: |blocked for more than|rcu: INFO: .* self-detected stall`)

// complaints finds what the kernel complained of, each with the lines after it.
func complaints(console string) string {
	const after = 30
	var out strings.Builder
	until := 0
	for i, line := range strings.SplitAfter(console, "\n") {
		if complaint.MatchString(line) && i >= until {
			until = i + after
		}
		if i < until {
			out.WriteString(line)
		}
	}
	return out.String()
}

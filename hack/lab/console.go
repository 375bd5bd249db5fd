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

// staleCode matches the oops of a breakpoint where there is none. The kernel sets one
// for a moment where it patches its code (a static key) while other CPUs run. Now and
// then, the more so on a busy machine, QEMU 7.2 runs the breakpoint after the kernel
// has taken it away: it seems to keep a translation made in that moment.
var staleCode = regexp.MustCompile(`int3: 0000 \[#1\]`)

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

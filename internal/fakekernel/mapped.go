//go:build linux

package fakekernel

import (
	"bytes"
	"os"
	"strconv"
)

// mapped tells whether a range is mapped throughout, readable, and writable if asked. Where
// the system does not show the maps the answer is yes.
func (m userMem) mapped(start, n uint64, writable bool) bool {
	maps, err := os.ReadFile("/proc/" + strconv.Itoa(m.pid()) + "/maps")
	if err != nil {
		return true
	}
	at, end := start, start+n
	for line := range bytes.Lines(maps) {
		lo, hi, perms := parseMap(line)
		if hi <= at {
			continue
		}
		if lo > at || len(perms) < 2 || perms[0] != 'r' || writable && perms[1] != 'w' {
			return false
		}
		if at = hi; at >= end {
			return true
		}
	}
	return false
}

// parseMap reads the beginning of a line: "7f00-7fff rw-p ...".
func parseMap(line []byte) (lo, hi uint64, perms []byte) {
	span, rest, _ := bytes.Cut(line, []byte(" "))
	from, to, _ := bytes.Cut(span, []byte("-"))
	lo, _ = strconv.ParseUint(string(from), 16, 64)
	hi, _ = strconv.ParseUint(string(to), 16, 64)
	return lo, hi, rest
}

package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units are the factors of size suffixes. A bare letter is binary, as in ping, dd and
// perftest; the two-letter forms say which.
var units = map[string]int64{
	"": 1, "b": 1,
	"k": 1 << 10, "kib": 1 << 10, "kb": 1e3,
	"m": 1 << 20, "mib": 1 << 20, "mb": 1e6,
	"g": 1 << 30, "gib": 1 << 30, "gb": 1e9,
}

// parseSize reads a number of bytes: 56, 4k, 64KiB, 1.5MiB, 1MB.
func parseSize(text string) (int, error) {
	digits := strings.TrimRightFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	unit, ok := units[strings.ToLower(strings.TrimSpace(text[len(digits):]))]
	if !ok {
		return 0, fmt.Errorf("size %q: unknown unit %q, use k, KiB, kB, M, MiB, MB, G, GiB or GB", text, text[len(digits):])
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || strings.ContainsAny(digits, "eEpPxX_nNiI+-") {
		return 0, fmt.Errorf("size %q is not a number of bytes, like 56, 4k or 1MiB", text)
	}
	n *= float64(unit)
	if n > math.MaxInt32 || n != math.Trunc(n) {
		return 0, fmt.Errorf("size %q: not a whole number of bytes below 2 GiB", text)
	}
	return int(n), nil
}

// formatSize is the short exact form: 56 bytes, 4 KiB, 1 MiB.
func formatSize(n int) string {
	switch {
	case n >= 1<<30 && n%(1<<30) == 0:
		return strconv.Itoa(n>>30) + " GiB"
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + " MiB"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + " KiB"
	case n == 1:
		return "1 byte"
	}
	return strconv.Itoa(n) + " bytes"
}

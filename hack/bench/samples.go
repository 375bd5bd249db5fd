package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// samples holds the values by name and by who ran: "c", "go" or "cgo".
type samples map[string]map[string][]float64

// collect reads "sample NAME WHO VALUE" lines and passes all others on.
func (s samples) collect(r io.Reader, others io.Writer) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) != 4 || f[0] != "sample" {
			fmt.Fprintln(others, lines.Text())
			continue
		}
		v, err := strconv.ParseFloat(f[3], 64)
		if err != nil {
			fmt.Fprintln(others, lines.Text())
			continue
		}
		if s[f[1]] == nil {
			s[f[1]] = map[string][]float64{}
		}
		s[f[1]][f[2]] = append(s[f[1]][f[2]], v)
	}
}

package main

import (
	"fmt"
	"strings"
)

// perfMaxSizes bounds a list of sizes.
const perfMaxSizes = 128

// sizesValue is a flag that takes sizes: 4k, a list 64,4k,1M, or a sweep 2..8M.
type sizesValue struct{ list *[]int }

func (v sizesValue) String() string {
	if v.list == nil {
		return ""
	}
	texts := make([]string, len(*v.list))
	for i := range texts {
		texts[i] = sizeValue{n: &(*v.list)[i]}.String()
	}
	return strings.Join(texts, ",")
}

func (v sizesValue) Type() string { return "sizes" }

func (v sizesValue) Set(text string) error {
	list, err := parseSizes(text)
	if err == nil {
		*v.list = list
	}
	return err
}

// parseSizes reads a list. A sweep doubles from its first size on and ends with its last.
func parseSizes(text string) (list []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		from, to, sweep := strings.Cut(part, "..")
		first, err := parsePerfSize(from)
		if err != nil {
			return nil, err
		}
		if list = append(list, first); sweep {
			last, err := parsePerfSize(to)
			if err != nil {
				return nil, err
			}
			if last < first {
				return nil, fmt.Errorf("sizes %q: the last is less than the first", part)
			}
			for n := 2 * first; n < last; n *= 2 {
				list = append(list, n)
			}
			if last > first {
				list = append(list, last)
			}
		}
		if len(list) > perfMaxSizes {
			return nil, fmt.Errorf("more than %d sizes", perfMaxSizes)
		}
	}
	return list, nil
}

func parsePerfSize(text string) (int, error) {
	n, err := parseSize(text)
	switch {
	case err != nil:
		return 0, err
	case n < 1 || n > perfMaxSize:
		return 0, fmt.Errorf("size %q: from 1 byte to %s", text, formatSize(perfMaxSize))
	}
	return n, nil
}

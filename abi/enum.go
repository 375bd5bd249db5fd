package abi

import "strconv"

// unnamed is the text of an enum value that the headers give no name, or of a
// combination of flags.
func unnamed(enum string, v int64) string {
	return enum + "(" + strconv.FormatInt(v, 10) + ")"
}

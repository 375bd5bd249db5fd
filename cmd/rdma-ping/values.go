package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// sizeValue is a flag that takes a size with a unit.
type sizeValue struct {
	n   *int
	max int
}

func (v sizeValue) String() string {
	if v.n == nil {
		return "0"
	}
	if text, ok := strings.CutSuffix(formatSize(*v.n), "iB"); ok {
		return strings.ReplaceAll(text, " ", "") + "iB"
	}
	return strconv.Itoa(*v.n)
}

func (v sizeValue) Set(text string) error {
	n, err := parseSize(text)
	if err != nil {
		return err
	}
	if n > v.max {
		return fmt.Errorf("at most %s", formatSize(v.max))
	}
	*v.n = n
	return nil
}

func (v sizeValue) Type() string { return "size" }

// secondsValue is a flag that takes a duration, and a bare number as seconds like ping(8).
type secondsValue struct {
	d        *time.Duration
	min, max time.Duration
}

func (v secondsValue) String() string {
	if v.d == nil {
		return "0s"
	}
	return v.d.String()
}

func (v secondsValue) Set(text string) error {
	d, err := parseSeconds(text)
	if err != nil {
		return err
	}
	if d < v.min || d > v.max {
		return fmt.Errorf("must be between %v and %v", v.min, v.max)
	}
	*v.d = d
	return nil
}

func (v secondsValue) Type() string { return "duration" }

func parseSeconds(text string) (time.Duration, error) {
	if s, err := strconv.ParseFloat(text, 64); err == nil {
		if math.IsNaN(s) || math.Abs(s) > 1e9 {
			return 0, fmt.Errorf("%q is out of range", text)
		}
		return time.Duration(s * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration, like 0.2, 200ms or 1m", text)
	}
	return d, nil
}

// plainFlag puts what package strconv says of a number into words that are not Go's.
func plainFlag(err error) error {
	var (
		value  *pflag.InvalidValueError
		number *strconv.NumError
	)
	if !errors.As(err, &value) || !errors.As(value.Unwrap(), &number) {
		return err
	}
	why := "is not a whole number"
	switch {
	case errors.Is(number.Err, strconv.ErrRange):
		why = "is out of range"
	case number.Func == "ParseBool":
		why = "is neither true nor false"
	case number.Func == "ParseUint":
		why = "is not a whole number from 0 on"
	}
	return fmt.Errorf("--%s: %q %s", value.GetFlag().Name, value.GetValue(), why)
}

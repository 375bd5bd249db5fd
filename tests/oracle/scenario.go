package oracle

import (
	"fmt"
	"strconv"
	"strings"
)

// Step is one line of a scenario.
type Step struct {
	Verb string
	Args []string
	Opts map[string]string
	Line string
}

// parseStep takes a line apart.
func parseStep(line string) Step {
	words := strings.Fields(line)
	s := Step{Verb: words[0], Line: line, Opts: make(map[string]string)}
	for _, w := range words[1:] {
		if key, value, ok := strings.Cut(w, "="); ok {
			s.Opts[key] = value
		} else {
			s.Args = append(s.Args, w)
		}
	}
	return s
}

// arg is argument i, "" if there is none.
func (s *Step) arg(i int) string {
	if i < len(s.Args) {
		return s.Args[i]
	}
	return ""
}

// num is argument i as a number.
func (s *Step) num(i int) uint64 { return number(s.arg(i)) }

// opt is an option as a number, 0 without it.
func (s *Step) opt(key string) uint64 { return number(s.Opts[key]) }

// has tells whether a word is among the arguments.
func (s *Step) has(word string) bool {
	for _, a := range s.Args {
		if a == word {
			return true
		}
	}
	return false
}

func number(text string) uint64 {
	n, _ := strconv.ParseUint(text, 0, 64)
	return n
}

// index is the number in an object's name.
func index(name string) int { return int(number(strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz"))) }

// at returns an object by its name, the zero value if it was never made.
func at[T any](all []T, name string) (x T) {
	if i := index(name); i < len(all) {
		return all[i]
	}
	return x
}

// Split cuts a text into scenarios, each from its line "scenario" to its line "end".
func Split(text string) (all []string, err error) {
	for _, part := range strings.SplitAfter(text, "\nend\n") {
		if part = strings.TrimLeft(part, "\n"); part == "" {
			continue
		}
		if !strings.HasPrefix(part, "scenario ") || !strings.HasSuffix(part, "\nend\n") {
			return nil, fmt.Errorf("a scenario begins with %.20q", part)
		}
		all = append(all, part)
	}
	return all, nil
}

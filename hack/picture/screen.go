//go:build unix

package main

import (
	"regexp"
	"strings"
	"time"
)

// line is a line of the screen, and when it was first to be seen.
type line struct {
	at   time.Duration
	text string
}

// screen is as much of a terminal as line by line output needs: a carriage return goes back to
// the beginning, text is written over text, and escape sequences do nothing but erase.
type screen struct {
	columns int
	lines   []line
	row     []rune
	column  int
	seen    bool // the row has got something
	at      time.Duration
}

// escape is a sequence of ECMA-48: of control, of the operating system, or of two characters.
var escape = regexp.MustCompile(`^\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])`)

// lines are what stands on the screen in the end.
func (rec recording) lines(columns int) []line {
	s := screen{columns: columns}
	var text strings.Builder
	for i, p := range rec {
		text.WriteString(p.text)
		if i+1 < len(rec) && cut(text.String()) {
			continue // a character or a sequence goes on in the next piece
		}
		s.write(p.at, text.String())
		text.Reset()
	}
	if s.seen {
		s.newLine()
	}
	return s.lines
}

// cut tells whether text ends in the middle of something.
func cut(text string) bool {
	if strings.HasSuffix(strings.ToValidUTF8(text, "\uffff"), "\uffff") {
		return true
	}
	i := strings.LastIndexByte(text, 0x1b)
	return i >= 0 && escape.FindString(text[i:]) == "" && len(text)-i < 32
}

func (s *screen) write(at time.Duration, text string) {
	for len(text) > 0 {
		if seq := escape.FindString(text); seq != "" {
			if strings.HasSuffix(seq, "K") {
				s.row = s.row[:min(s.column, len(s.row))]
			}
			text = text[len(seq):]
			continue
		}
		r := []rune(text[:min(4, len(text))])[0]
		text = text[len(string(r)):]
		s.put(at, r)
	}
}

func (s *screen) put(at time.Duration, r rune) {
	switch {
	case r == '\n':
		if !s.seen {
			s.at = at
		}
		s.newLine()
	case r == '\r':
		s.column = 0
	case r == '\b':
		s.column = max(0, s.column-1)
	case r == '\t':
		for ok := true; ok; ok = s.column%8 != 0 {
			s.put(at, ' ')
		}
	case r < ' ':
	default:
		if s.column == s.columns {
			s.newLine()
		}
		if !s.seen {
			s.seen, s.at = true, at
		}
		for len(s.row) <= s.column {
			s.row = append(s.row, ' ')
		}
		s.row[s.column] = r
		s.column++
	}
}

func (s *screen) newLine() {
	s.lines = append(s.lines, line{s.at, strings.TrimRight(string(s.row), " ")})
	s.row, s.column, s.seen = nil, 0, false
}

// prompt begins a line with a command.
const prompt = "$ "

// session is the part from the first prompt on, with its clock at 0 and no pause longer than
// gap.
func session(lines []line, gap time.Duration) (out []line) {
	var last, now time.Duration
	for _, l := range lines {
		if len(out) == 0 && !strings.HasPrefix(l.text, prompt) {
			continue
		}
		if len(out) > 0 {
			now += min(max(0, l.at-last), gap)
		}
		last = l.at
		out = append(out, line{now, l.text})
	}
	for len(out) > 0 && out[len(out)-1].text == "" {
		out = out[:len(out)-1]
	}
	return out
}

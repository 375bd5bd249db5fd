package oracle

import (
	"fmt"
	"strings"
)

// Comparison holds traces against each other, and counts what the allow-list excused.
type Comparison struct {
	Used [len(allowed)]int // of each entry of the allow-list
}

// Plain is the trace of a scenario as a list of lines in which all that is excused looks the
// same.
func (c *Comparison) Plain(scenario, trace string, side Side) []string {
	var lines []string
	for line := range strings.Lines(trace) {
		if line, keep := c.allow(scenario, strings.TrimSuffix(line, "\n"), side); keep {
			lines = append(lines, line)
		}
	}
	return lines
}

func (c *Comparison) allow(scenario, line string, side Side) (string, bool) {
	for i := range allowed {
		a := &allowed[i]
		if a.Side&side == 0 || !strings.HasPrefix(scenario, a.Scenario) || !a.Line.MatchString(line) {
			continue
		}
		c.Used[i]++
		if a.Drop {
			return "", false
		}
		if a.Rewrite != nil {
			line = a.Rewrite(line)
		} else {
			line = a.Line.ReplaceAllString(line, a.Replace)
		}
	}
	return line, true
}

// Traces cuts a trace by scenarios, whose names it returns in order.
func Traces(text string) (names []string, byName map[string]string) {
	byName = make(map[string]string)
	for _, part := range strings.Split("\n"+text, "\n== ")[1:] {
		name, trace, _ := strings.Cut(part, "\n")
		names = append(names, name)
		byName[name] = strings.TrimSuffix(trace, "\n")
	}
	return names, byName
}

// around is how many lines around a difference are shown.
const around = 6

// Differ tells where two lists of lines part, "" if they do not.
func Differ(c, g []string) string {
	i := 0
	for i < len(c) && i < len(g) && c[i] == g[i] {
		i++
	}
	if i == len(c) && i == len(g) {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "line %d:\n", i)
	for _, line := range c[max(0, i-around):i] {
		fmt.Fprintf(&b, "   %s\n", line)
	}
	show(&b, "C ", c[i:])
	show(&b, "Go", g[i:])
	return b.String()
}

func show(b *strings.Builder, who string, lines []string) {
	for _, line := range lines[:min(len(lines), around)] {
		fmt.Fprintf(b, "%s %s\n", who, line)
	}
	if len(lines) == 0 {
		fmt.Fprintf(b, "%s (ends)\n", who)
	}
}

package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// histogramChoice is the flag --histogram: "true", "false", or on its own, "" or "auto".
type histogramChoice string

func (c *histogramChoice) addFlag(f *pflag.FlagSet, what string) {
	f.Var(c, "histogram", "draw a histogram of "+what+"; auto: on a terminal, from 20 on")
	f.Lookup("histogram").NoOptDefVal = "true"
}

func (c *histogramChoice) String() string { return cmp.Or(string(*c), "auto") }

func (c *histogramChoice) Set(text string) error {
	on, err := strconv.ParseBool(text)
	switch {
	case err == nil:
		*c = histogramChoice(strconv.FormatBool(on))
	case text == "auto":
		*c = ""
	default:
		return fmt.Errorf("%q is not auto, true or false", text)
	}
	return nil
}

// Type makes the flag look like other flags that need no value.
func (c *histogramChoice) Type() string { return "bool" }

func (c histogramChoice) forced() bool { return c == "true" }

// histogramFrom is the number of values below which a histogram says less than the lines.
const histogramFrom = 20

// wanted tells whether to draw n values on w.
func (c histogramChoice) wanted(w io.Writer, n uint64) bool {
	if c == "" {
		return n >= histogramFrom && isTerminal(w)
	}
	return n > 0 && c.forced()
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// canvas is where a histogram is drawn.
type canvas struct {
	width int
	ascii bool
}

func canvasFor(w io.Writer) canvas {
	c := canvas{width: 80, ascii: !utf8Locale(os.Getenv)}
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			c.width = width
		}
	}
	return c
}

// utf8Locale tells whether characters beyond ASCII can be shown. The first variable that is
// set decides: locale(7).
func utf8Locale(getenv func(string) string) bool {
	locale := strings.ToLower(cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")))
	return strings.HasSuffix(locale, "utf-8") || strings.HasSuffix(locale, "utf8")
}

// histogramRow is how many values were at least from and less than to.
type histogramRow struct {
	from, to float64 // nanoseconds
	count    int64
	marks    string
}

// drawHistogram returns lines of text: a title and a row for each range of times, which are
// in nanoseconds in h and shown in microseconds. It returns "" if h is empty.
func drawHistogram(title string, h *hdrhistogram.Histogram, c canvas) string {
	if h.TotalCount() == 0 {
		return ""
	}
	rows := histogramRows(h)
	most := slices.MaxFunc(rows, func(a, b histogramRow) int { return cmp.Compare(a.count, b.count) }).count
	edge, count := 0, len(strconv.FormatInt(most, 10))
	for _, r := range rows {
		edge = max(edge, len(edgeText(r.to)), len(edgeText(r.from)))
	}
	bars := max(10, c.width-(edge+3+edge+2+count+2+len("100.0%")+2+len(" p50 p99")))
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d\n", title, h.TotalCount())
	for _, r := range rows {
		line := fmt.Sprintf("%*s - %*s  %*d  %5.1f%%  %s%s", edge, edgeText(r.from), edge, edgeText(r.to), count, r.count,
			100*float64(r.count)/float64(h.TotalCount()), bar(r.count, most, bars, c.ascii), r.marks)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// edgeText is nanoseconds in microseconds, with as many digits as are not 0.
func edgeText(ns float64) string {
	text := strconv.FormatFloat(ns/1e3, 'f', 6, 64)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}

// bar is as long as n is in relation to most, which takes width; what is not 0 shows.
func bar(n, most int64, width int, ascii bool) string {
	full, parts := "\u2588", []rune("\u258f\u258e\u258d\u258c\u258b\u258a\u2589")
	if ascii {
		full, parts = "#", nil
	}
	steps := len(parts) + 1
	long := int(math.Round(float64(n) / float64(most) * float64(width*steps)))
	if n > 0 {
		long = max(long, 1)
	}
	text := strings.Repeat(full, long/steps)
	if rest := long % steps; rest > 0 {
		text += string(parts[rest-1])
	}
	return text
}

// histogramRows counts values by ranges, and marks those in which the median and the 99th
// percentile are.
func histogramRows(h *hdrhistogram.Histogram) []histogramRow {
	bars := slices.DeleteFunc(h.Distribution(), func(b hdrhistogram.Bar) bool { return b.Count == 0 })
	// The end of a bar stands for all of it, as for percentiles.
	lo, hi := float64(max(bars[0].To, 1)), float64(max(bars[len(bars)-1].To, 1))
	var rows []histogramRow
	if hi < 4*lo {
		rows = countRows(bars, evenEdges(lo, hi))
	} else {
		for _, steps := range []int{96, 48, 24, 12, 6, 3, 1} {
			if rows = countRows(bars, logEdges(steps, lo, hi)); len(rows) <= histogramMost {
				break
			}
		}
	}
	mark(rows, h.TotalCount(), 0.50, "p50")
	mark(rows, h.TotalCount(), 0.99, "p99")
	return rows
}

// countRows counts bars between edges. Rows with nothing that follow on each other become
// one: few values far from all others must not make the rows of those coarse.
func countRows(bars []hdrhistogram.Bar, edges []float64) (rows []histogramRow) {
	for i := range len(edges) - 1 {
		r := histogramRow{from: edges[i], to: edges[i+1]}
		for len(bars) > 0 && float64(bars[0].To) < r.to {
			r.count += bars[0].Count
			bars = bars[1:]
		}
		if last := len(rows) - 1; r.count == 0 && last >= 0 && rows[last].count == 0 {
			rows[last].to = r.to
			continue
		}
		rows = append(rows, r)
	}
	return rows
}

// mark names the row that has the value below or at which a share of all is.
func mark(rows []histogramRow, total int64, share float64, name string) {
	sum := int64(0)
	for i := range rows {
		sum += rows[i].count
		if float64(sum) >= share*float64(total) {
			rows[i].marks += " " + name
			return
		}
	}
}

// histogramMost is how many rows there are at most.
const histogramMost = 20

// evenEdges are multiples of a round number, from at most lo to more than hi.
func evenEdges(lo, hi float64) (edges []float64) {
	// Values are known to three digits: finer rows would be empty ones.
	finest := hi / 250
	for exp := math.Floor(math.Log10(finest)); ; exp++ {
		for _, digits := range []float64{1, 2, 2.5, 5} {
			step := digits * math.Pow(10, exp)
			first, last := math.Floor(lo/step), math.Floor(hi/step)+1
			if step < finest || last-first > histogramMost {
				continue
			}
			for i := first; i <= last; i++ {
				edges = append(edges, i*step)
			}
			return edges
		}
	}
}

// logEdges has the same number of steps in each decade, from at most lo to more than hi.
func logEdges(steps int, lo, hi float64) (edges []float64) {
	for exp := math.Floor(math.Log10(lo)); ; exp++ {
		for i := range steps {
			edge := preferred(i, steps) * math.Pow(10, exp)
			if edge <= lo {
				edges = edges[:0]
			}
			edges = append(edges, edge)
			if edge > hi {
				return edges
			}
		}
	}
}

// preferred is number i of a series of preferred numbers from 1 to 10: 1-2-5 or one of
// IEC 60063, those of electrical resistors, with two digits up to 24 steps, else three.
func preferred(i, steps int) float64 {
	e24 := [...]float64{10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91}
	switch {
	case steps == 3:
		return [...]float64{1, 2, 5}[i]
	case steps <= len(e24):
		return e24[i*len(e24)/steps] / 10
	}
	return math.Round(100*math.Pow(10, float64(i)/float64(steps))) / 100
}

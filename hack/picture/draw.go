//go:build unix

package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The measures of the picture, in pixels. A character is as wide as most monospaced fonts have
// it; textLength makes others fit.
const (
	charWidth  = 7.8
	lineHeight = 17
	margin     = 16
	titleBar   = 34
)

// style has the colours for a light and a dark page. Without animations, wherever they are not
// wanted or not there, every line is to be seen from the beginning.
const style = `
  text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #24292f; white-space: pre }
  .title { fill: #57606a; text-anchor: middle }
  .command { font-weight: bold; fill: #0550ae }
  .window { fill: #ffffff; stroke: #d0d7de }
  .bar { fill: #f6f8fa }
  .dot { fill: #d0d7de }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .title { fill: #8d96a0 }
    .command { fill: #79c0ff }
    .window { fill: #0d1117; stroke: #30363d }
    .bar { fill: #161b22 }
    .dot { fill: #30363d }
  }
  @media (prefers-reduced-motion: no-preference) {
    .line { animation: appear 1ms both }
    @keyframes appear { from { opacity: 0 } }
  }
`

// draw makes the picture of a terminal's window.
func draw(title string, lines []line, columns int) []byte {
	width := int(charWidth*float64(columns)) + 2*margin
	height := titleBar + lineHeight*len(lines) + 2*margin
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="img" aria-label="%[4]s" xml:space="preserve">`+"\n",
		width, height, height, escaped(title))
	fmt.Fprintf(&b, "<style>%s</style>\n", style)
	fmt.Fprintf(&b, `<rect class="window" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", width-1, height-1)
	fmt.Fprintf(&b, `<path class="bar" d="M1 %d V9 a8 8 0 0 1 8 -8 H%d a8 8 0 0 1 8 8 V%[1]d z"/>`+"\n", titleBar, width-9)
	for i := range 3 {
		fmt.Fprintf(&b, `<circle class="dot" cx="%d" cy="%d" r="6"/>`+"\n", margin+6+20*i, titleBar/2)
	}
	fmt.Fprintf(&b, `<text class="title" x="%d" y="%d">%s</text>`+"\n", width/2, titleBar/2+4, escaped(title))
	for i, l := range lines {
		if l.text == "" {
			continue
		}
		drawLine(&b, l, titleBar+margin+lineHeight*(i+1)-5)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func drawLine(b *bytes.Buffer, l line, y int) {
	class := "line"
	if strings.HasPrefix(l.text, prompt) {
		class += " command"
	}
	text := strings.TrimLeft(l.text, " ")
	indent := utf8.RuneCountInString(l.text) - utf8.RuneCountInString(text)
	fmt.Fprintf(b, `<text class="%s" x="%g" y="%d" textLength="%g" style="animation-delay:%dms">%s</text>`+"\n",
		class, round(margin+charWidth*float64(indent)), y, round(charWidth*float64(utf8.RuneCountInString(text))), l.at.Milliseconds(), escaped(text))
}

// round cuts what is left of binary fractions.
func round(x float64) float64 { return float64(int(x*10+0.5)) / 10 }

func escaped(text string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(text)) //nolint:errcheck // a Builder never fails
	return b.String()
}

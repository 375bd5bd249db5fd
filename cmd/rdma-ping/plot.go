package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// plotFile is the flag --plot: the path of a picture, "" for none. The ending says in which
// format.
type plotFile string

var plotFormats = []string{"svg", "png"}

func (f *plotFile) addFlag(flags *pflag.FlagSet) {
	flags.Var(f, "plot", "draw the result as a picture: `file`.svg or .png")
	_ = cobra.MarkFlagFilename(flags, "plot", plotFormats...) // fails only without the flag
}

func (f *plotFile) String() string { return string(*f) }
func (f *plotFile) Type() string   { return "file" }

func (f *plotFile) Set(path string) error {
	*f = plotFile(path)
	if !slices.Contains(plotFormats, f.format()) {
		return errors.New("want a file that ends with .svg or .png")
	}
	return nil
}

func (f plotFile) format() string {
	return strings.TrimPrefix(strings.ToLower(filepath.Ext(string(f))), ".")
}

// check finds out before a run if its picture can be written.
func (f plotFile) check() error {
	if f == "" {
		return nil
	}
	if info, err := os.Stat(string(f)); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("picture %s: it is there, and no file", f)
	}
	tmp, err := f.create()
	if err != nil {
		return err
	}
	return errors.Join(tmp.Close(), os.Remove(tmp.Name()))
}

// create opens a new file beside the picture's place. Only a whole picture is moved there,
// so that a run that fails leaves an old one as it was.
func (f plotFile) create() (*os.File, error) {
	path := fmt.Sprintf("%s.%d.tmp", f, os.Getpid())
	tmp, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if cause := (*fs.PathError)(nil); errors.As(err, &cause) {
		return nil, fmt.Errorf("picture %s: %w", f, cause.Err)
	}
	return tmp, err
}

// write draws the picture.
func (f plotFile) write(p *plot.Plot) error {
	canvas, err := draw.NewFormattedCanvas(plotWidth, plotHeight, f.format())
	if err != nil {
		return err
	}
	page := draw.New(canvas)
	page.SetColor(p.BackgroundColor)
	page.Fill(page.Path())
	p.Draw(draw.Crop(page, plotMargin, -plotMargin, plotMargin, -plotMargin))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	tmp, err := f.create()
	if err != nil {
		return err
	}
	_, err = tmp.Write(bytes.ReplaceAll(b.Bytes(), []byte(svgFont), []byte(svgFonts)))
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), string(f))
	}
	if err != nil {
		err = fmt.Errorf("picture %s: %w", f, errors.Join(err, os.Remove(tmp.Name())))
	}
	return err
}

// The font by which texts are measured is not on every machine; those that take its place
// have the same widths.
const (
	svgFont  = "font-family:Liberation Sans;"
	svgFonts = "font-family:Liberation Sans,Arial,Helvetica,sans-serif;"
)

// errNothing is a run that measured nothing that could be shown.
var errNothing = errors.New("nothing to plot: nothing was answered")

// picture draws the result of a run that is over, if a picture is wanted. A picture that
// does not come about is an error of a run that had none.
func (a *app) picture(f plotFile, result func() (*plot.Plot, error)) {
	if f == "" {
		return
	}
	p, err := result()
	if err == nil {
		err = f.write(p)
	}
	if err == nil {
		return
	}
	fmt.Fprintf(a.stderr, "rdma-ping: %s\n", explain(err))
	if a.status == statusOK {
		a.status = statusError
	}
}

const (
	plotWidth  = 8 * vg.Inch
	plotHeight = 5 * vg.Inch
	plotMargin = vg.Length(10)
)

// newPlot is an empty picture; the second line of the title may be long.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(8)
	p.Legend.Top = true
	p.Legend.Padding = vg.Points(2)
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		f.Variant = "Sans"
	}
	return p
}

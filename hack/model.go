package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// Facts is what uapi.json holds: everything the generator knows of the kernel headers.
type Facts struct {
	Package string   `json:"package"` // where the headers came from
	Version string   `json:"version"` // and its exact version
	Headers []Header `json:"headers"`
}

// A Header is one kernel header and its declarations in source order.
type Header struct {
	Path   string `json:"path"` // as a C program includes it
	SHA256 string `json:"sha256"`
	Dep    bool   `json:"dep,omitempty"` // only what the asked-for headers reach is listed
	Decls  []Decl `json:"decls"`
}

// A Decl is a struct, union, enum or macro.
type Decl struct {
	Kind   string  `json:"kind"`
	Name   string  `json:"name,omitempty"` // "" for an enum without a tag
	Size   int64   `json:"size,omitempty"`
	Align  int64   `json:"align,omitempty"`
	Value  string  `json:"value,omitempty"` // macro, in decimal
	Text   string  `json:"text,omitempty"`  // macro, as written
	Fields []Field `json:"fields,omitempty"`
	Consts []Const `json:"consts,omitempty"`
}

// A Const is one enumerator.
type Const struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// A Field is one member of a struct or union. Offsets count from the start of
// the aggregate that directly holds the field.
type Field struct {
	Name   string `json:"name,omitempty"` // "" for an anonymous struct or union
	CType  string `json:"ctype"`          // as the header spells it
	Type   string `json:"type"`           // u8..u64, s8..s64, be16..be64, char, ptr, "struct x", "union x", "enum x"
	Dims   []int  `json:"dims,omitempty"` // array lengths, outermost first
	Flex   bool   `json:"flex,omitempty"` // flexible array member
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
	Align  int64  `json:"align"`
	Inline *Decl  `json:"inline,omitempty"` // struct or union without a tag
}

func (f *Field) isUnion() bool { return f.Inline != nil && f.Inline.Kind == "union" }

// writeFacts prints one field or enumerator a line, so that a diff of two
// header versions reads well.
func writeFacts(w io.Writer, f *Facts) error {
	p := &printer{w: w}
	p.printf("{\n%q: %s,\n%q: %s,\n\"headers\": [\n", "package", p.json(f.Package), "version", p.json(f.Version))
	for i, h := range f.Headers {
		head := h
		head.Decls = nil
		p.printf("%s\"decls\": [\n", strings.TrimSuffix(p.json(head), "\"decls\":null}"))
		for j, d := range h.Decls {
			p.decl(d)
			p.sep(j, len(h.Decls))
		}
		p.printf("]}")
		p.sep(i, len(f.Headers))
	}
	p.printf("]\n}\n")
	return p.err
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *printer) json(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // keep 1<<20 readable
	if err := enc.Encode(v); p.err == nil {
		p.err = err
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (p *printer) sep(i, n int) {
	if i < n-1 {
		p.printf(",")
	}
	p.printf("\n")
}

func (p *printer) decl(d Decl) {
	head := d
	head.Fields, head.Consts = nil, nil
	s := strings.TrimSuffix(p.json(head), "}")
	switch {
	case len(d.Fields) > 0:
		p.printf("  %s,\"fields\":[\n", s)
		for i, f := range d.Fields {
			p.printf("    %s", p.json(f))
			p.sep(i, len(d.Fields))
		}
		p.printf("  ]}")
	case len(d.Consts) > 0:
		p.printf("  %s,\"consts\":[\n", s)
		for i, c := range d.Consts {
			p.printf("    %s", p.json(c))
			p.sep(i, len(d.Consts))
		}
		p.printf("  ]}")
	default:
		p.printf("  %s}", s)
	}
}

// readFacts loads uapi.json.
func readFacts(path string) (*Facts, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := new(Facts)
	if err := json.Unmarshal(b, f); err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	return f, nil
}

func sha256Hex(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// aggregates maps "struct x" and "union x" to their declarations.
func (f *Facts) aggregates() map[string]*Decl {
	m := map[string]*Decl{}
	for i := range f.Headers {
		for j := range f.Headers[i].Decls {
			if d := &f.Headers[i].Decls[j]; d.Kind == "struct" || d.Kind == "union" {
				m[d.Kind+" "+d.Name] = d
			}
		}
	}
	return m
}

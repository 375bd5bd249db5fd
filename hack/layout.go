package main

import (
	"io"
	"maps"
	"slices"
	"strconv"
)

// A Layout is what one kernel's headers say, flat: the golden files of
// abi/testdata and the assertions for gcc are made of it.
type Layout struct {
	Kernel  string                  `json:"kernel"`
	Package string                  `json:"package"`
	Structs map[string]StructLayout `json:"structs"` // by tag
	Consts  []map[string]int64      `json:"consts"`  // one map an enum or run of macros

	headers []string // that were read
}

// A StructLayout holds the members of a struct or union by their C path.
type StructLayout struct {
	Kind   string              `json:"kind"`
	Size   int64               `json:"size"`
	Align  int64               `json:"align"`
	Fields map[string][2]int64 `json:"fields"` // offset, size; size 0: a flexible array
}

// layoutOf flattens the facts.
func layoutOf(f *Facts) *Layout {
	l := &Layout{Package: f.Package + " " + f.Version, Structs: map[string]StructLayout{}}
	for _, h := range f.Headers {
		l.headers = append(l.headers, h.Path)
		macros := map[string]int64{}
		for _, d := range h.Decls {
			switch d.Kind {
			case "macro":
				if !skipMacro(&d) {
					macros[d.Name] = parseInt(d.Value)
				}
			case "enum":
				l.Consts = append(l.Consts, enumValues(d))
			default:
				s := StructLayout{d.Kind, d.Size, d.Align, map[string][2]int64{}}
				flatten(s.Fields, "", d.Fields, 0)
				l.Structs[d.Name] = s
			}
		}
		if len(macros) > 0 {
			l.Consts = append(l.Consts, macros)
		}
	}
	return l
}

func enumValues(d Decl) map[string]int64 {
	m := map[string]int64{}
	for _, c := range d.Consts {
		m[c.Name] = parseInt(c.Value)
	}
	return m
}

// parseInt keeps the bits of a value above the int64 range.
func parseInt(s string) int64 {
	if v, err := strconv.ParseInt(s, 10, 64); err == nil {
		return v
	}
	v, _ := strconv.ParseUint(s, 10, 64)
	return int64(v)
}

// flatten enters the members by the path a C program would write. It descends
// only into structs and unions that have no tag, hence no entry of their own.
func flatten(out map[string][2]int64, prefix string, fields []Field, base int64) {
	for _, f := range fields {
		off, path := base+f.Offset, prefix+f.Name
		if f.Name != "" && f.Type != "ptr" && (f.Size > 0 || f.Flex) {
			out[path] = [2]int64{off, f.Size}
		}
		if f.Inline == nil || len(f.Dims) > 0 || f.Flex {
			continue
		}
		if f.Name != "" {
			path += "."
		}
		flatten(out, path, f.Inline.Fields, off)
	}
}

// write prints one struct or enum a line, sorted.
func (l *Layout) write(w io.Writer) error {
	p := &printer{w: w}
	p.printf("{\n\"kernel\": %s,\n\"package\": %s,\n\"structs\": {\n", p.json(l.Kernel), p.json(l.Package))
	names := slices.Sorted(maps.Keys(l.Structs))
	for i, n := range names {
		p.printf("%q: %s", n, p.json(l.Structs[n]))
		p.sep(i, len(names))
	}
	p.printf("},\n\"consts\": [\n")
	for i, c := range l.Consts {
		p.printf("%s", p.json(c))
		p.sep(i, len(l.Consts))
	}
	p.printf("]\n}\n")
	return p.err
}

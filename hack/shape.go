package main

import (
	"fmt"
	"strings"
)

// A shape is a Go struct as it will be printed.
type shape struct {
	name    string // Go
	cname   string // "struct x" or a path for one without a tag
	size    int64
	align   int64
	members []member
	arms    []arm
	flex    []string // what follows the struct in memory, for the comment
	unions  int      // anonymous ones so far
	word    int64    // largest alignment of a member
}

func (s *shape) add(m member, align int64) {
	s.members = append(s.members, m)
	s.word = max(s.word, align)
}

// A member is one field of the Go struct.
type member struct {
	name, typ    string
	offset, size int64
}

// An arm is a union member (or a misaligned field), reached by a method.
type arm struct {
	method, typ string
	path        string // in C
	blob        string // field that holds it
	offset      int64  // inside blob
	aligned     bool   // may be pointed to
}

// shaper turns the facts into shapes.
type shaper struct {
	decls  map[string]*Decl
	shapes []*shape
	err    error
}

func (g *shaper) fail(format string, args ...any) {
	if g.err == nil {
		g.err = fmt.Errorf(format, args...)
	}
}

// define adds the shape of d and, after it, those of its inline structs.
func (g *shaper) define(name, cname string, d *Decl) {
	s := &shape{name: name, cname: cname, size: d.Size, align: d.Align}
	g.shapes = append(g.shapes, s)
	if d.Kind == "union" {
		g.union(s, Field{Size: d.Size, Align: d.Align, Inline: d}, 0)
	} else {
		g.fields(s, d.Fields, 0)
	}
	g.checkNames(s)
}

// checkNames refuses a struct whose fields and accessors share a name.
func (g *shaper) checkNames(s *shape) {
	seen := map[string]bool{}
	for _, m := range s.members {
		if seen[m.name] {
			g.fail("%s: two members are called %s", s.name, m.name)
		}
		seen[m.name] = true
	}
	for _, a := range s.arms {
		if seen[a.method] {
			g.fail("%s: two members are called %s", s.name, a.method)
		}
		seen[a.method] = true
	}
}

func (g *shaper) fields(s *shape, fields []Field, base int64) {
	for _, f := range fields {
		off := base + f.Offset
		switch {
		case f.Flex && f.Name != "":
			s.flex = append(s.flex, fmt.Sprintf("%s, an array of %s", f.Name, f.CType))
		case f.Size == 0: // holds at most flexible arrays
		case f.isUnion() && len(f.Dims) == 0:
			g.union(s, f, off)
		case f.Name == "":
			g.fields(s, f.Inline.Fields, off)
		default:
			g.field(s, f, off)
		}
	}
}

// field adds a plain member; one that Go could not place at its offset becomes
// bytes with accessors that copy.
func (g *shaper) field(s *shape, f Field, off int64) {
	typ, name := g.typeOf(s.name, s.cname, f), camel(f.Name)
	if align := g.goAlign(f); off%align == 0 && align <= s.align {
		s.add(member{name, typ, off, f.Size}, align)
		return
	}
	blob := name + "Bytes"
	s.add(member{blob, fmt.Sprintf("[%d]byte", f.Size), off, f.Size}, 1)
	s.arms = append(s.arms, arm{method: name, typ: typ, path: f.Name, blob: blob})
}

// union adds the blob of a union and an accessor for every arm.
func (g *shaper) union(s *shape, f Field, off int64) {
	blob := camel(f.Name)
	if f.Name == "" {
		s.unions++
		if blob = "Union"; s.unions > 1 {
			blob = fmt.Sprint(blob, s.unions)
		}
	}
	word := blobWord(s.align, off, f)
	typ := fmt.Sprintf("[%d]uint%d", f.Size/word, 8*word)
	s.add(member{blob, typ, off, f.Size}, word)
	g.unionArms(s, blob, word, f.Name, f.Inline.Fields, 0)
}

// blobWord picks the unit of a union's blob: as aligned as the union itself.
// outer is the alignment of the struct around it, which may be packed.
func blobWord(outer, off int64, f Field) int64 {
	for w := int64(8); w > 1; w /= 2 {
		if min(f.Align, outer) >= w && off%w == 0 && f.Size%w == 0 {
			return w
		}
	}
	return 1
}

func (g *shaper) unionArms(s *shape, blob string, word int64, cprefix string, fields []Field, base int64) {
	for _, f := range fields {
		off := base + f.Offset
		switch {
		case f.Size == 0 || f.Type == "ptr": // flexible, or of the kernel's own use
		case f.Name == "":
			g.unionArms(s, blob, word, cprefix, f.Inline.Fields, off)
		default:
			owner, cowner := s.name+camel(cprefix), strings.TrimSuffix(s.cname+"."+cprefix, ".")
			align := g.goAlign(f)
			s.arms = append(s.arms, arm{
				method:  camel(cprefix) + camel(f.Name),
				path:    strings.TrimPrefix(cprefix+"."+f.Name, "."),
				typ:     g.typeOf(owner, cowner, f),
				blob:    blob,
				offset:  off,
				aligned: word >= align && off%align == 0,
			})
		}
	}
}

// typeOf gives the Go type of a field. A struct without a tag is defined on
// the way, named after its owner.
func (g *shaper) typeOf(owner, cowner string, f Field) string {
	var b strings.Builder
	for _, n := range f.Dims {
		fmt.Fprintf(&b, "[%d]", n)
	}
	kind, tag, _ := strings.Cut(f.Type, " ")
	switch {
	case f.Inline != nil:
		name := owner + camel(f.Name)
		b.WriteString(name)
		g.define(name, cowner+"."+f.Name, f.Inline)
	case goScalars[f.Type] != "":
		b.WriteString(goScalars[f.Type])
	case tag != "" && (kind == "enum" || g.decls[f.Type] != nil):
		b.WriteString(camel(tag))
	default:
		g.fail("%s.%s: no Go type for %s", cowner, f.Name, f.Type)
	}
	return b.String()
}

// goAlign is the alignment of the field's Go type on a 64-bit system. Structs
// are printed so that it equals C's.
func (g *shaper) goAlign(f Field) int64 {
	d := f.Inline
	if d == nil {
		d = g.decls[f.Type]
	}
	if d != nil {
		return d.Align
	}
	n := f.Size
	for _, k := range f.Dims {
		n /= int64(k)
	}
	return n
}

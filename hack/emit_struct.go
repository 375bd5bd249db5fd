package main

import (
	"bytes"
	"fmt"
)

// aggregate prints a struct or union, the structs inside it that have no tag,
// and the accessors of its unions.
func (e *emitter) aggregate(b *bytes.Buffer, h *Header, d *Decl) {
	g := &shaper{decls: e.decls}
	g.define(camel(d.Name), d.Kind+" "+d.Name, d)
	if g.err != nil {
		e.fail("%w", g.err)
		return
	}
	for i, s := range g.shapes {
		e.take(s.name, s.cname)
		e.shapes = append(e.shapes, s)
		if i == 0 {
			fmt.Fprintf(b, "// %s is %s of %s.\n", s.name, s.cname, h.Path)
		} else {
			fmt.Fprintf(b, "// %s is member %s.\n", s.name, s.cname)
		}
		printStruct(b, s)
		for _, a := range s.arms {
			printArm(b, s, a)
		}
	}
}

func printStruct(b *bytes.Buffer, s *shape) {
	fmt.Fprintf(b, "type %s struct {\n_ structs.HostLayout\n", s.name)
	if s.word < s.align {
		// C gets this alignment from a flexible array that is left out here.
		fmt.Fprintf(b, "_ [0]uint%d\n", 8*s.align)
	}
	at := int64(0)
	for _, m := range s.members {
		pad(b, m.offset-at)
		fmt.Fprintf(b, "%s %s\n", m.name, m.typ)
		at = m.offset + m.size
	}
	pad(b, s.size-at)
	for _, f := range s.flex {
		fmt.Fprintf(b, "// Followed by %s.\n", f)
	}
	b.WriteString("}\n\n")
}

func pad(b *bytes.Buffer, n int64) {
	if n > 0 {
		fmt.Fprintf(b, "_ [%d]byte\n", n)
	}
}

// printArm prints the accessor of a union member. It points into the blob
// where alignment allows, else it copies.
func printArm(b *bytes.Buffer, s *shape, a arm) {
	at := fmt.Sprintf("unsafe.Pointer(&x.%s)", a.blob)
	if a.offset > 0 {
		at = fmt.Sprintf("unsafe.Add(%s, %d)", at, a.offset)
	}
	if a.aligned {
		fmt.Fprintf(b, "// %s points to member %s of %s.\n", a.method, a.path, s.cname)
		fmt.Fprintf(b, "func (x *%s) %s() *%s { return (*%s)(%s) }\n\n", s.name, a.method, a.typ, a.typ, at)
		return
	}
	fmt.Fprintf(b, "// %s copies member %s out of %s, where it is not aligned.\n", a.method, a.path, s.cname)
	fmt.Fprintf(b, "func (x *%s) %s() (v %s) {\ncopy((*[unsafe.Sizeof(v)]byte)(unsafe.Pointer(&v))[:], (*[unsafe.Sizeof(v)]byte)(%s)[:])\nreturn v\n}\n\n", s.name, a.method, a.typ, at)
	fmt.Fprintf(b, "// Set%s copies v into member %s.\n", a.method, a.path)
	fmt.Fprintf(b, "func (x *%s) Set%s(v %s) {\ncopy((*[unsafe.Sizeof(v)]byte)(%s)[:], (*[unsafe.Sizeof(v)]byte)(unsafe.Pointer(&v))[:])\n}\n\n", s.name, a.method, a.typ, at)
}

// layout prints an assertion for every size and offset. A wrong one is an
// index out of range, so the package does not compile, whatever GOARCH.
func (e *emitter) layout() {
	b := e.open(layoutFile, "Compile-time proof of every size and offset")
	for _, s := range e.shapes {
		fmt.Fprintf(b, "func _() {\nvar v %s\nvar ok [1]struct{}\n", s.name)
		fmt.Fprintf(b, "_ = ok[unsafe.Sizeof(v)-%d]\n", s.size)
		for _, m := range s.members {
			fmt.Fprintf(b, "_ = ok[unsafe.Offsetof(v.%s)-%d]\n", m.name, m.offset)
		}
		b.WriteString("}\n\n")
	}
}

// types prints, for the layout test, which Go type mirrors which C type.
func (e *emitter) types() {
	b := e.open(typesFile, "The Go type of every C struct and union")
	b.WriteString("var goTypes = map[string]reflect.Type{\n")
	for i := range e.facts.Headers {
		for _, d := range e.facts.Headers[i].Decls {
			if d.Kind == "struct" || d.Kind == "union" {
				fmt.Fprintf(b, "%q: reflect.TypeFor[%s](),\n", d.Name, camel(d.Name))
			}
		}
	}
	b.WriteString("}\n")
}

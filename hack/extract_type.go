package main

import (
	"strings"

	"modernc.org/cc/v4"
)

func kindOf(t cc.Type) string {
	if t.Kind() == cc.Union {
		return "union"
	}
	return "struct"
}

// tagOf gives the tag of a struct, union or enum, "" if it has none.
func tagOf(t interface{ Tag() cc.Token }) string {
	tag := t.Tag()
	return tag.SrcStr()
}

// fielded is what cc's struct and union types share.
type fielded interface {
	cc.Type
	NumFields() int
	FieldByIndex(int) *cc.Field
	Tag() cc.Token
}

// aggregate turns a struct or union type into a Decl.
func (x *extractor) aggregate(t cc.Type) Decl {
	a := t.(fielded)
	d := Decl{Kind: kindOf(t), Name: tagOf(a), Size: t.Size(), Align: int64(t.Align())}
	for i := 0; i < a.NumFields(); i++ {
		if f := a.FieldByIndex(i); f != nil {
			d.Fields = append(d.Fields, x.field(d, f))
		}
	}
	return d
}

func (x *extractor) field(d Decl, f *cc.Field) Field {
	if f.IsBitfield() {
		x.fail("%s %s: bit-field %s cannot be expressed in Go", d.Kind, d.Name, f.Name())
	}
	r := Field{Name: f.Name(), Offset: f.Offset(), Flex: f.IsFlexibleArrayMember()}
	t := f.Type()
	r.CType = spell(t)
	if !r.Flex {
		r.Size = t.Size()
	}
	r.Align = int64(t.FieldAlign())
	for {
		a, ok := t.Undecay().(*cc.ArrayType)
		if !ok {
			break
		}
		if !r.Flex {
			r.Dims = append(r.Dims, int(a.Len()))
		}
		t = a.Elem()
		r.CType = spell(t)
	}
	x.baseType(&r, t)
	return r
}

// spell gives a type as the header has it, where cc keeps that.
func spell(t cc.Type) string {
	if d := t.Typedef(); d != nil {
		return d.Name()
	}
	switch t := t.(type) {
	case *cc.EnumType:
		return "enum " + tagOf(t)
	case fielded:
		return strings.TrimSpace(kindOf(t) + " " + tagOf(t))
	case *cc.PointerType:
		return spell(t.Elem()) + " *"
	}
	return t.String()
}

// scalars are the types whose C spelling says more than their size and sign.
var scalars = map[string]string{
	"__be16": "be16", "__be32": "be32", "__be64": "be64",
	"char": "char", // has a sign on some architectures only
}

// baseType fills in what kind of value the field holds.
func (x *extractor) baseType(r *Field, t cc.Type) {
	if b := scalars[r.CType]; b != "" {
		r.Type = b
		return
	}
	switch u := t.(type) {
	case *cc.EnumType:
		r.Type = "enum " + tagOf(u)
	case *cc.PointerType:
		r.Type = "ptr"
	case fielded:
		if tagOf(u) == "" {
			d := x.aggregate(u)
			r.Type, r.Inline = d.Kind, &d
			return
		}
		r.Type = kindOf(u) + " " + tagOf(u)
		x.queue = append(x.queue, r.Type)
	default:
		r.Type = integerType(t)
		if r.Type == "" {
			x.fail("field %s: type %s has no Go counterpart", r.Name, t)
		}
	}
}

func integerType(t cc.Type) string {
	if !cc.IsIntegerType(t) {
		return ""
	}
	sign := "u"
	if cc.IsSignedInteger(t) {
		sign = "s"
	}
	return sign + map[int64]string{1: "8", 2: "16", 4: "32", 8: "64"}[t.Size()]
}

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"sort"
	"strings"

	"modernc.org/cc/v4"
	"modernc.org/token"
)

// inputs are the headers that abi mirrors. Headers that they include are not
// listed: of those only the types that are reached get into the facts.
var inputs = []string{
	"rdma/ib_user_verbs.h",
	"rdma/ib_user_ioctl_cmds.h",
	"rdma/ib_user_ioctl_verbs.h",
	"rdma/rdma_user_ioctl.h",
	"rdma/rdma_user_ioctl_cmds.h",
	"rdma/rdma_user_cm.h",
	"rdma/rdma_netlink.h",
	"rdma/rdma_user_rxe.h",
	"rdma/siw-abi.h",
	"rdma/mlx5-abi.h",
	"rdma/mlx5_user_ioctl_cmds.h",
	"rdma/mlx5_user_ioctl_verbs.h",
}

// predefined replaces what a C compiler would tell about itself.
const predefined = `
#define __STDC__ 1
#define __STDC_VERSION__ 201112L
#define __linux__ 1
#define __LP64__ 1
#define __GNUC__ 12
#define __SIZE_TYPE__ unsigned long
#define __PTRDIFF_TYPE__ long
#define __WCHAR_TYPE__ int
#define __CHAR_BIT__ 8
#define __ORDER_LITTLE_ENDIAN__ 1234
#define __ORDER_BIG_ENDIAN__ 4321
`

// An arch is what the headers ask of an architecture.
type arch struct {
	triplet    string // directory with its asm/
	predefined string
}

const (
	little = "#define __BYTE_ORDER__ 1234\n"
	big    = "#define __BYTE_ORDER__ 4321\n"
)

// arches are the 64-bit systems abi is for. The first step runs on amd64's;
// check makes sure that the others give the same.
var arches = map[string]arch{
	"amd64":   {"x86_64-linux-gnu", little + "#define __x86_64__ 1\n"},
	"arm64":   {"aarch64-linux-gnu", little + "#define __aarch64__ 1\n"},
	"loong64": {"loongarch64-linux-gnu", little + "#define __loongarch__ 1\n#define __loongarch_lp64 1\n"},
	"ppc64le": {"powerpc64le-linux-gnu", little + "#define __powerpc__ 1\n#define __powerpc64__ 1\n"},
	"riscv64": {"riscv64-linux-gnu", little + "#define __riscv 1\n#define __riscv_xlen 64\n"},
	"s390x":   {"s390x-linux-gnu", big + "#define __s390__ 1\n#define __s390x__ 1\n"},
}

// Two things of cc.Builtin without which the translation does not start.
const builtin = `
#define __extension__
int __predefined_declarator;
typedef __SIZE_TYPE__ __predefined_size_t;
typedef __PTRDIFF_TYPE__ __predefined_ptrdiff_t;
typedef __WCHAR_TYPE__ __predefined_wchar_t;
`

// translate runs the C front end over the headers names below root (a
// directory laid out like /usr/include). It sees nothing but root: no
// compiler, no environment, no other include path.
func translate(tree fs.FS, goarch string, names []string) (*cc.AST, error) {
	a, ok := arches[goarch]
	if !ok {
		return nil, fmt.Errorf("unknown architecture %q", goarch)
	}
	abi, err := cc.NewABI("linux", goarch)
	if err != nil {
		return nil, err
	}
	cfg := &cc.Config{
		ABI:             abi,
		ABILayout:       true,
		DefaultSizeT:    cc.ULong,
		EvalAllMacros:   true,
		FS:              tree,
		FSOnly:          true,
		Header:          true,
		IncludePaths:    []string{".", a.triplet},
		SysIncludePaths: []string{".", a.triplet},
		UnsignedEnums:   true,
	}
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "#include <%s>\n", n)
	}
	ast, err := cc.Translate(cfg, []cc.Source{
		{Name: "<predefined>", Value: predefined + a.predefined},
		{Name: "<builtin>", Value: builtin},
		{Name: "<all>", Value: b.String()},
	})
	if err != nil {
		return nil, fmt.Errorf("translate headers: %w", err)
	}
	return ast, nil
}

// extract collects the facts of the headers names below root.
func extract(root, goarch string, names []string) (*Facts, error) {
	tree := os.DirFS(root)
	ast, err := translate(tree, goarch, names)
	if err != nil {
		return nil, err
	}
	x := &extractor{tree: tree, wanted: map[string]bool{}, found: map[string][]positioned{}, seen: map[string]bool{}}
	for _, n := range names {
		x.wanted[n] = true
	}
	for tu := ast.TranslationUnit; tu != nil; tu = tu.TranslationUnit {
		if e := tu.ExternalDeclaration; e != nil && e.Declaration != nil {
			x.declaration(e.Declaration)
		}
	}
	x.macros(ast)
	x.taggedInside(ast)
	if err := x.reach(ast); err != nil {
		return nil, err
	}
	return x.facts(names)
}

// positioned keeps a declaration with its place in the header, for sorting.
type positioned struct {
	offset int
	Decl
}

type extractor struct {
	tree   fs.FS
	wanted map[string]bool
	found  map[string][]positioned // by header
	seen   map[string]bool         // "struct x", "enum x" that are in found
	queue  []string                // types named by a field
	err    error
}

func headerOf(p token.Position) string { return path.Clean(p.Filename) }

func (x *extractor) fail(format string, args ...any) {
	if x.err == nil {
		x.err = fmt.Errorf(format, args...)
	}
}

func (x *extractor) add(p token.Position, d Decl) {
	if d.Name != "" && d.Kind != "macro" {
		key := d.Kind + " " + d.Name
		if x.seen[key] {
			return
		}
		x.seen[key] = true
	}
	h := headerOf(p)
	x.found[h] = append(x.found[h], positioned{p.Line<<12 | p.Column, d})
}

// declaration takes the types a file-scope declaration of a wanted header defines.
func (x *extractor) declaration(d *cc.Declaration) {
	if !x.wanted[headerOf(d.Position())] {
		return
	}
	for s := d.DeclarationSpecifiers; s != nil; s = s.DeclarationSpecifiers {
		if s.TypeSpecifier == nil {
			continue
		}
		if e := s.TypeSpecifier.EnumSpecifier; e != nil && e.EnumeratorList != nil {
			x.enum(e)
		}
		if a := s.TypeSpecifier.StructOrUnionSpecifier; a != nil && a.StructDeclarationList != nil {
			x.add(a.Position(), x.aggregate(a.Type()))
		}
	}
}

// taggedInside takes structs and enums with a tag that are defined inside
// another struct; in C their scope is the file.
func (x *extractor) taggedInside(ast *cc.AST) {
	for _, nodes := range ast.Scope.Nodes {
		for _, n := range nodes {
			if !x.wanted[headerOf(n.Position())] {
				continue
			}
			switch n := n.(type) {
			case *cc.StructOrUnionSpecifier:
				if n.StructDeclarationList != nil {
					x.add(n.Position(), x.aggregate(n.Type()))
				}
			case *cc.EnumSpecifier:
				if n.EnumeratorList != nil {
					x.enum(n)
				}
			}
		}
	}
}

func (x *extractor) enum(e *cc.EnumSpecifier) {
	d := Decl{Kind: "enum", Name: e.Token2.SrcStr(), Size: e.Type().Size()}
	if d.Name == "{" {
		d.Name = ""
	}
	for l := e.EnumeratorList; l != nil; l = l.EnumeratorList {
		v, ok := integer(l.Enumerator.Value())
		if !ok {
			x.fail("enumerator %s has no integer value", l.Enumerator.Token.SrcStr())
		}
		d.Consts = append(d.Consts, Const{l.Enumerator.Token.SrcStr(), v})
	}
	x.add(e.Position(), d)
}

func integer(v cc.Value) (string, bool) {
	switch v := v.(type) {
	case cc.Int64Value:
		return fmt.Sprint(int64(v)), true
	case cc.UInt64Value:
		return fmt.Sprint(uint64(v)), true
	}
	return "", false
}

// macros takes object-like macros with an integer value. Include guards have
// none; a macro that repeats an enumerator of the same name adds nothing.
func (x *extractor) macros(ast *cc.AST) {
	for name, m := range ast.Macros {
		if m.IsFnLike || !x.wanted[headerOf(m.Position())] || len(m.ReplacementList()) == 0 {
			continue
		}
		v, ok := integer(m.Value())
		if !ok {
			continue
		}
		var text strings.Builder
		for _, t := range m.ReplacementList() {
			if text.Len() > 0 && len(t.Sep()) > 0 {
				text.WriteString(" ")
			}
			text.WriteString(t.SrcStr())
		}
		if text.String() != name {
			x.add(m.Position(), Decl{Kind: "macro", Name: name, Value: v, Text: text.String()})
		}
	}
}

// reach follows the types of fields into headers that were not asked for.
func (x *extractor) reach(ast *cc.AST) error {
	byTag := map[string]*cc.StructOrUnionSpecifier{}
	for name, nodes := range ast.Scope.Nodes {
		for _, n := range nodes {
			if s, ok := n.(*cc.StructOrUnionSpecifier); ok && s.StructDeclarationList != nil {
				byTag[kindOf(s.Type())+" "+name] = s
			}
		}
	}
	for len(x.queue) > 0 && x.err == nil {
		key := x.queue[0]
		x.queue = x.queue[1:]
		if x.seen[key] {
			continue
		}
		s := byTag[key]
		if s == nil {
			return fmt.Errorf("%s is used but not defined", key)
		}
		x.add(s.Position(), x.aggregate(s.Type()))
	}
	return x.err
}

func (x *extractor) facts(names []string) (*Facts, error) {
	f := new(Facts)
	deps := []string{}
	for h := range x.found {
		if !x.wanted[h] {
			deps = append(deps, h)
		}
	}
	sort.Strings(deps)
	for _, h := range append(append([]string{}, names...), deps...) {
		src, err := fs.ReadFile(x.tree, h)
		if err != nil {
			return nil, err
		}
		hd := Header{Path: h, SHA256: sha256Hex(src), Dep: !x.wanted[h], Decls: []Decl{}}
		ds := x.found[h]
		sort.SliceStable(ds, func(i, j int) bool { return ds[i].offset < ds[j].offset })
		for _, d := range ds {
			hd.Decls = append(hd.Decls, d.Decl)
		}
		f.Headers = append(f.Headers, hd)
	}
	return f, nil
}

package main

import (
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// writeAsserts prints a C file that compiles only if the compiler lays out
// every struct and numbers every constant as the facts say.
//
// With have, the layout of the headers the file will meet, it asserts what the
// two have in common: an older kernel lacks members, and its structs may be
// shorter, but nothing that it has lies elsewhere.
func writeAsserts(w io.Writer, f *Facts, have *Layout) error {
	p := &printer{w: w}
	p.printf("/* Assertions on %s %s. Compile with -fsyntax-only. */\n", f.Package, f.Version)
	for _, h := range f.Headers {
		if !h.Dep && (have == nil || slices.Contains(have.headers, h.Path)) {
			p.printf("#include <%s>\n", h.Path)
		}
	}
	p.printf("#define OFFSET(t, m, n) _Static_assert(__builtin_offsetof(t, m) == n, \"offset of \" #m)\n")
	p.printf("#define MEMBER(t, m, n) _Static_assert(sizeof(((t *)0)->m) == n, \"size of \" #m)\n")
	want := layoutOf(f)
	for _, name := range slices.Sorted(maps.Keys(want.Structs)) {
		assertStruct(p, name, want.Structs[name], have)
	}
	assertConsts(p, want, have)
	return p.err
}

func assertConsts(p *printer, want, have *Layout) {
	old := map[string]bool{}
	if have != nil {
		for _, m := range have.Consts {
			for n := range m {
				old[n] = true
			}
		}
	}
	for _, m := range want.Consts {
		for _, n := range slices.Sorted(maps.Keys(m)) {
			if have == nil || old[n] && !derived(n) {
				p.printf("_Static_assert(%s == %dULL, %q);\n", n, uint64(m[n]), n)
			}
		}
	}
}

func assertStruct(p *printer, name string, want StructLayout, have *Layout) {
	ctype, got := want.Kind+" "+name, StructLayout{}
	if have != nil {
		ok := false
		if got, ok = have.Structs[name]; !ok {
			return
		}
		p.printf("_Static_assert(sizeof(%s) <= %d, \"size of %s\");\n", ctype, want.Size, ctype)
	} else {
		p.printf("_Static_assert(sizeof(%s) == %d && _Alignof(%s) == %d, \"size of %s\");\n", ctype, want.Size, ctype, want.Align, ctype)
	}
	for _, path := range slices.Sorted(maps.Keys(want.Fields)) {
		_, shared := got.Fields[path]
		if have != nil && (!shared || reserved(path) || changed(name, path)) {
			continue
		}
		at := want.Fields[path]
		p.printf("OFFSET(%s, %s, %d);\n", ctype, path, at[0])
		if at[1] > 0 {
			p.printf("MEMBER(%s, %s, %d);\n", ctype, path, at[1])
		}
	}
}

var reservedName = regexp.MustCompile(`^(reserved|rsvd|pad)[0-9_]*$`)

// reserved tells a member that a later kernel may put to use.
func reserved(path string) bool {
	return reservedName.MatchString(path[strings.LastIndexByte(path, '.')+1:])
}

// changed lists what older headers had elsewhere or of another size. Each was
// looked into; abi/layout_test.go has the reasons.
func changed(name, path string) bool {
	switch name + "." + path {
	case "mlx5_ib_match_params.match_params", "rxe_send_wqe.wr", "rxe_send_wr.wr", "rxe_send_wr.wr.ud":
		return true
	}
	return false
}

// derived tells constants that count others, so that they grow with them.
func derived(name string) bool {
	switch name {
	case "MLX5_IB_DW_MATCH_PARAM", "RDMA_NL_NUM_GROUPS", "RDMA_NLDEV_NUM_OPS", "RDMA_NLDEV_ATTR_MAX":
		return true
	}
	return false
}

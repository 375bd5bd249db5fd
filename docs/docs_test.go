// Package docs checks that the pages do not drift from the code.
package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pages are all pages for people, by their path from here.
func pages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, pattern := range []string{"*.md", "howto/*.md", "../*.md", "../hack/*.md", "../hack/*/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			pages[name] = read(t, name)
		}
	}
	if len(pages) < 8 {
		t.Fatalf("only %d pages found", len(pages))
	}
	return pages
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestProgram: the program of the README is one that compiles, and is run by the tests.
func TestProgram(t *testing.T) {
	readme := read(t, "../README.md")
	_, code, ok := strings.Cut(readme, "```go\n")
	code, _, end := strings.Cut(code, "```")
	if !ok || !end {
		t.Fatal("README.md has no Go code")
	}
	if diff := cmp.Diff(read(t, "hello/main.go"), code); diff != "" {
		t.Errorf("README.md differs from docs/hello/main.go (-want +got):\n%s", diff)
	}
	if n := strings.Count(readme, "\n"); n > 160 {
		t.Errorf("README.md has %d lines, at most 160 is the rule", n)
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

func TestLinks(t *testing.T) {
	for name, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s: link to %s: %v", name, m[1], err)
			}
		}
	}
}

var makeTarget = regexp.MustCompile(`\bmake ([a-z][a-z-]*)`)

func TestMakeTargets(t *testing.T) {
	makefile := read(t, "../Makefile")
	for name, text := range pages(t) {
		// In code only: prose makes things, too.
		for _, code := range inCode.FindAllString(text, -1) {
			for _, m := range makeTarget.FindAllStringSubmatch(code, -1) {
				if !strings.Contains(makefile, "\n"+m[1]+":") {
					t.Errorf("%s: the Makefile has no target %q", name, m[1])
				}
			}
		}
	}
}

var (
	inCode  = regexp.MustCompile("`[^`]+`|(?m)^    .*$")
	mention = regexp.MustCompile(`\b(rdmacm|uverbs)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)
)

// TestNames: what the pages name is there.
func TestNames(t *testing.T) {
	known := map[string]bool{}
	for _, path := range []string{"rdmacm", "internal/provider", "uverbs"} {
		exported(t, path, known)
	}
	for _, name := range []string{"rdmacm.Listener.Accept", "uverbs.ErrBusy", "uverbs.WC.Imm", "uverbs.Opcode.String", "uverbs.SGE.LKey"} {
		if !known[name] {
			t.Fatalf("the packages were not read right: %s is missing", name)
		}
	}
	for name, text := range pages(t) {
		for _, code := range inCode.FindAllString(text, -1) {
			for _, m := range mention.FindAllString(code, -1) {
				if !known[m] {
					t.Errorf("%s: there is no %s", name, m)
				}
			}
		}
	}
}

// exported adds the names of a package: constants, variables, functions, types, and the
// methods and fields of types. A type that is another name of one of a package read before
// has what that one has.
func exported(t *testing.T, path string, known map[string]bool) {
	t.Helper()
	pkg := filepath.Base(path)
	names, err := filepath.Glob("../" + path + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset, files := token.NewFileSet(), []*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, pkg)
	if err != nil {
		t.Fatal(err)
	}
	values := append(p.Consts, p.Vars...)
	for _, typ := range p.Types {
		known[pkg+"."+typ.Name] = true
		values = append(append(values, typ.Consts...), typ.Vars...)
		for _, name := range members(typ, known) {
			known[pkg+"."+typ.Name+"."+name] = true
		}
		p.Funcs = append(p.Funcs, typ.Funcs...)
	}
	for _, f := range p.Funcs {
		known[pkg+"."+f.Name] = true
	}
	for _, v := range values {
		for _, n := range v.Names {
			known[pkg+"."+n] = true
		}
	}
}

// members are the methods and fields of a type.
func members(typ *doc.Type, known map[string]bool) (names []string) {
	for _, f := range typ.Methods {
		names = append(names, f.Name)
	}
	for _, s := range typ.Decl.Specs {
		spec, ok := s.(*ast.TypeSpec)
		if !ok || spec.Name.Name != typ.Name {
			continue
		}
		switch is := spec.Type.(type) {
		case *ast.StructType:
			for _, f := range is.Fields.List {
				for _, n := range f.Names {
					names = append(names, n.Name)
				}
			}
		case *ast.SelectorExpr:
			if from, ok := is.X.(*ast.Ident); ok && spec.Assign.IsValid() {
				prefix := from.Name + "." + is.Sel.Name + "."
				for name := range known {
					if member, ok := strings.CutPrefix(name, prefix); ok {
						names = append(names, member)
					}
				}
			}
		}
	}
	return names
}

// TestJVerbsProgram: the steps of the connection on jverbs-flow.md are in the example that the
// page names, all of them and no others, at either end; and so are those of the teardown, but
// for the last, which the example leaves to defer.
func TestJVerbsProgram(t *testing.T) {
	functions := stepsByFunction(t, "../rdmacm/example_linux_test.go")
	sections := map[string]string{}
	for section := range strings.SplitSeq(read(t, "jverbs-flow.md"), "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		sections[title] = text
	}
	for _, tt := range []struct {
		section   string
		column    int // rows with nothing there do not count
		last      bool
		functions []string
	}{
		{"The connection", 3, true, []string{"exampleServer", "newNode"}},
		{"The connection", 4, true, []string{"exampleClient", "newNode"}},
		{"Teardown", 3, false, []string{"close"}},
	} {
		want, got := map[string]string{}, map[string]string{}
		rows := stepRow.FindAllStringSubmatch(sections[tt.section], -1)
		lines := stepLine.FindAllString(sections[tt.section], -1)
		for i, m := range rows {
			if strings.TrimSpace(strings.Split(lines[i], "|")[tt.column]) != "" && (tt.last || i < len(rows)-1) {
				want[m[1]] = m[2]
			}
		}
		for _, f := range tt.functions {
			for _, m := range functions[f] {
				if got[m[1]] != "" {
					t.Errorf("%v have step %s twice", tt.functions, m[1])
				}
				got[m[1]] = m[2]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || len(want) < 6 {
			t.Errorf("%s: %d steps differ from those of %v (-page +program):\n%s", tt.section, len(want), tt.functions, diff)
		}
	}
}

var stepLine = regexp.MustCompile(`(?m)^\| \d+ .*$`)

// stepsByFunction are the comments with numbers of each function of a file.
func stepsByFunction(t *testing.T, name string) map[string][][]string {
	t.Helper()
	fset, text := token.NewFileSet(), read(t, name)
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string][][]string{}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			body := text[fset.Position(fn.Pos()).Offset:fset.Position(fn.End()).Offset]
			steps[fn.Name.Name] = stepComment.FindAllStringSubmatch(body, -1)
		}
	}
	return steps
}

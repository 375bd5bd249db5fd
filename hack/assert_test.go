package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const assertSnippet = "enum e { E_A = 7 };\n#define M 9\nstruct a { __u32 n; union { __be32 imm; struct { __u16 h; } s; } ex; __u64 tail[]; };\nunion u { __u8 b[3]; };"

// compileAsserts lets gcc judge the facts against the headers in root.
func compileAsserts(t *testing.T, root string, f *Facts, have *Layout) error {
	t.Helper()
	var b bytes.Buffer
	if err := writeAsserts(&b, f, have); err != nil {
		t.Fatal(err)
	}
	c := filepath.Join(t.TempDir(), "a.c")
	if err := os.WriteFile(c, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("gcc", "-std=gnu11", "-fsyntax-only", "-nostdinc", "-isystem", root, c).CombinedOutput()
	if err != nil {
		t.Logf("gcc: %s", bytes.TrimSpace(out))
	}
	return err
}

func needGcc(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc: apt-get install gcc")
	}
}

func TestAssert(t *testing.T) {
	needGcc(t)
	tests := []struct {
		name string
		edit func([]Decl)
		ok   bool
	}{
		{"as extracted", func([]Decl) {}, true},
		{"enumerator", func(d []Decl) { d[0].Consts[0].Value = "8" }, false},
		{"macro", func(d []Decl) { d[1].Value = "8" }, false},
		{"offset", func(d []Decl) { d[2].Fields[0].Offset = 4 }, false},
		{"offset in a union", func(d []Decl) { d[2].Fields[1].Inline.Fields[1].Inline.Fields[0].Offset = 2 }, false},
		{"offset of a flexible array", func(d []Decl) { d[2].Fields[2].Offset = 16 }, false},
		{"member size", func(d []Decl) { d[2].Fields[0].Size = 8 }, false},
		{"size", func(d []Decl) { d[3].Size = 4 }, false},
		{"alignment", func(d []Decl) { d[3].Align = 2 }, false},
	}
	root := tree(t, assertSnippet)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := extract(root, "amd64", []string{"rdma/t.h"})
			if err != nil {
				t.Fatal(err)
			}
			tt.edit(f.Headers[0].Decls)
			if err := compileAsserts(t, root, f, nil); (err == nil) != tt.ok {
				t.Errorf("gcc accepts: got %t, want %t", err == nil, tt.ok)
			}
		})
	}
}

// Against older headers only what both have is asserted.
func TestAssertOlder(t *testing.T) {
	needGcc(t)
	newer := extractSnippet(t, "enum e { E_A = 7, E_B };\nstruct a { __u32 n; __u32 used; __u64 more; };\nstruct b { __u32 n; };")
	for c, ok := range map[string]bool{
		"enum e { E_A = 7 };\nstruct a { __u32 n; __u32 reserved; };": true,
		"struct a { __u32 reserved; __u32 n; };":                      false,
		"enum e { E_A = 6 };":                                         false,
	} {
		root := tree(t, c)
		old, err := extract(root, "amd64", []string{"rdma/t.h"})
		if err != nil {
			t.Fatal(err)
		}
		if err := compileAsserts(t, root, newer, layoutOf(old)); (err == nil) != ok {
			t.Errorf("%s: gcc accepts: got %t, want %t", c, err == nil, ok)
		}
	}
}

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// typesHeader stands for the kernel's linux/types.h.
const typesHeader = `
typedef unsigned char __u8; typedef unsigned short __u16; typedef unsigned int __u32; typedef unsigned long long __u64;
typedef signed int __s32; typedef __u16 __be16; typedef __u32 __be32; typedef __u64 __be64;
#define __aligned_u64 __u64 __attribute__((aligned(8)))
#define __packed __attribute__((packed))
`

// tree writes an include directory with one header, rdma/t.h.
func tree(t *testing.T, src string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"linux/types.h": typesHeader,
		"linux/other.h": "#include <linux/types.h>\nstruct other { __u16 a; };\n",
		"rdma/t.h":      "#ifndef T_H\n#define T_H\n#include <linux/types.h>\n#include <linux/other.h>\n" + src + "\n#endif\n",
	} {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func extractSnippet(t *testing.T, src string) *Facts {
	t.Helper()
	f, err := extract(tree(t, src), "amd64", []string{"rdma/t.h"})
	if err != nil {
		t.Fatal(err)
	}
	f.Package, f.Version = headersPackage, "1"
	return f
}

var blanks = regexp.MustCompile(`[ \t]+`)

// goText is all generated Go but the layout assertions, with single blanks.
func goText(t *testing.T, f *Facts) string {
	t.Helper()
	files, err := generate(f)
	if err != nil {
		t.Fatal(err)
	}
	return blanks.ReplaceAllString(string(files[depsFile])+string(files[stringFile]), " ")
}

func TestGenerate(t *testing.T) {
	tests := []struct {
		name, c  string
		want     []string
		unwanted []string
	}{
		{"scalars and padding",
			"struct a_b { __u8 x; __aligned_u64 big_one; __s32 s; __be16 port; char name[3]; };",
			[]string{"// AB is struct a_b of rdma/t.h.\ntype AB struct {\n _ structs.HostLayout\n X uint8\n _ [7]byte\n BigOne uint64\n S int32\n Port BE16\n Name [3]uint8\n _ [7]byte\n}"}, nil},
		{"flexible arrays",
			"struct a { __u32 n; __u32 v[]; }; struct b { __u32 n; __u64 old[0]; };",
			[]string{"type A struct {\n _ structs.HostLayout\n N uint32\n // Followed by v, an array of __u32.\n}",
				"type B struct {\n _ structs.HostLayout\n _ [0]uint64\n N uint32\n _ [4]byte\n // Followed by old, an array of __u64.\n}"}, nil},
		{"named union",
			"struct a { __u32 op; union { __be32 imm_data; __u32 rkey; } ex; };",
			[]string{"Ex [1]uint32", "// ExImmData points to member ex.imm_data of struct a.\nfunc (x *A) ExImmData() *BE32 { return (*BE32)(unsafe.Pointer(&x.Ex)) }",
				"func (x *A) ExRkey() *uint32"}, nil},
		{"anonymous unions and structs",
			"struct a { union { __aligned_u64 data; struct { __u32 lo; __u32 hi; }; }; union { __u16 p; __u8 q[2]; }; struct { __u16 in; }; };",
			[]string{"Union [1]uint64\n Union2 [1]uint16\n In uint16\n _ [4]byte\n}", "func (x *A) Data() *uint64",
				"func (x *A) Hi() *uint32 { return (*uint32)(unsafe.Add(unsafe.Pointer(&x.Union), 4)) }", "func (x *A) Q() *[2]uint8"}, nil},
		{"structs without a tag",
			"struct a { struct { __u8 in; } inner; union { struct { __u64 addr; } rdma; } wr; };",
			[]string{"Inner AInner\n", "type AInner struct", "func (x *A) WrRdma() *AWrRdma", "// AWrRdma is member struct a.wr.rdma."}, nil},
		{"tagged union", "union u { __u8 raw[16]; __u64 w[2]; }; struct h { union u id; };",
			[]string{"type U struct {\n _ structs.HostLayout\n Union [2]uint64\n}", "func (x *U) Raw() *[16]uint8", "Id U\n"}, nil},
		{"union no more aligned than its place",
			"struct a { __u64 uid; __u32 id; union { __u32 conn[4]; __u8 b; } param; __u32 r; };",
			[]string{"Param [4]uint32"}, nil},
		{"misaligned by packing",
			"struct a { __u8 x; __u64 wide; union { __u32 n; __u8 b; } u; } __packed;",
			[]string{"X uint8\n WideBytes [8]byte\n U [4]uint8\n", "func (x *A) Wide() (v uint64)", "func (x *A) SetWide(v uint64)",
				"func (x *A) UN() (v uint32)", "func (x *A) SetUN(v uint32)", "func (x *A) UB() *uint8"}, nil},
		{"types of other headers", "struct a { struct other o[2]; };",
			[]string{"O [2]Other", "// Other is struct other of linux/other.h."}, nil},
		{"two dimensions", "struct a { __u16 m[2][3]; };", []string{"M [2][3]uint16"}, nil},
		{"pointers in a union", "struct a { union { void *kernel; __u64 id; }; };", []string{"Id() *uint64"}, []string{"Kernel"}},
		{"named enum", "enum e_f { E_A, E_B = 5, E_C = 5, E_D = 4096 }; struct s { enum e_f e; };",
			[]string{"// Values of enum e_f of rdma/t.h.\nconst (\n E_A = 0\n E_B = 5\n E_C = 5\n E_D = 0x1000\n)", "type EF uint32", "E EF\n",
				"case E_B:\n return \"E_B\"\n case E_D:", "return unnamed(\"e_f\", int64(v))"}, nil},
		{"wide and signed enums", "enum w { W_A = 1ULL << 40 }; enum n { N_A = -1 };",
			[]string{"type W uint64", "W_A = 0x10000000000", "type N int32", "N_A = -1"}, nil},
		{"enum without a tag", "enum { A_B = 3 };", []string{"// An enum without a tag of rdma/t.h.\nconst (\n A_B = 3\n)"}, []string{"func (v"}},
		{"macros", "#define M_DEC 10\n#define M_HEX 0x10\n#define M_SUM (M_DEC + 1)\n#define M_STR \"x\"\n#define M_FN(x) (x)\n#define M_SELF M_SELF\nenum { M_SELF = 1 };",
			[]string{"M_DEC = 10\n M_HEX = 0x10\n M_SUM = 11 // (M_DEC + 1)\n)"}, []string{"M_STR", "M_FN", "T_H"}},
		{"request numbers", "#define _IOC(d, n) (((d) << 30) | (n))\n#define _IOWR(a, n, t) _IOC(3U, n)\n#define _IOR(a, n, t) _IOC(2U, n)\n#define REQ _IOWR(1, 2, int)\n#define ONE_WAY _IOR(1, 2, int)",
			[]string{"REQ = 0xc0000002 // _IOWR(1, 2, int)"}, []string{"ONE_WAY"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := goText(t, extractSnippet(t, tt.c))
			for _, w := range tt.want {
				if !strings.Contains(got, w) {
					t.Errorf("no such text: %s\ngot:\n%s", w, got)
				}
			}
			for _, u := range tt.unwanted {
				if strings.Contains(got, u) {
					t.Errorf("unwanted %q in:\n%s", u, got)
				}
			}
		})
	}
}

func TestGenerateRefuses(t *testing.T) {
	tests := []struct{ name, c, want string }{
		{"bit-field", "struct a { __u32 x : 3; };", "bit-field x"},
		{"floating point", "struct a { double d; };", "no Go counterpart"},
		{"same Go type", "struct a_b { __u8 x; }; struct a__b { __u8 x; };", "would be called AB"},
		{"same Go field", "struct a { __u8 x_y; __u8 x__y; };", "two members are called XY"},
		{"accessor like a field", "struct a { __u32 data; union { __u32 _data; }; };", "two members are called Data"},
		{"syntax", "struct a { nonsense x; };", "translate headers"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := extract(tree(t, tt.c), "amd64", []string{"rdma/t.h"})
			if err == nil {
				_, err = generate(f)
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// What is committed is what the committed facts give; and giving it twice gives the same.
func TestCommittedFiles(t *testing.T) {
	f, err := readFacts("uapi.json")
	if err != nil {
		t.Fatal(err)
	}
	a, err := generate(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := compareFiles(filepath.Join("..", "abi"), a); err != nil {
		t.Error(err)
	}
	b, err := generate(f)
	if err != nil {
		t.Fatal(err)
	}
	for name := range a {
		if !bytes.Equal(a[name], b[name]) {
			t.Errorf("%s differs between two runs", name)
		}
	}
	raw, err := os.ReadFile("uapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := firstDifference(raw, encode(f)); diff != "" {
		t.Errorf("uapi.json read and written: %s", diff)
	}
}

// Negative control of the check above.
func TestCompareFilesSees(t *testing.T) {
	dir := t.TempDir()
	want := map[string][]byte{"za.go": []byte("one\ntwo\n")}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("za.go", "one\ntwo\n")
	if err := compareFiles(dir, want); err != nil {
		t.Errorf("equal files: %v", err)
	}
	write("za.go", "one\nzwei\n")
	if err := compareFiles(dir, want); err == nil || !strings.Contains(err.Error(), `line 2: want "two", got "zwei"`) {
		t.Errorf("changed line: got %v", err)
	}
	write("za.go", "one\ntwo\n")
	write("zold.go", "")
	if err := compareFiles(dir, want); err == nil || !strings.Contains(err.Error(), "zold.go") {
		t.Errorf("left-over file: got %v", err)
	}
}

// A packed struct is made into a package and run with pointer checks on: the
// copying accessors must read and write the right bytes.
func TestMisalignedAccessorsRun(t *testing.T) {
	files, err := generate(extractSnippet(t, "struct a { __u8 x; __u64 wide; union { __u32 n; __u8 b; } u; __u8 y; } __packed; enum e { E_A };"))
	if err != nil {
		t.Fatal(err)
	}
	files["run_test.go"] = []byte(`package abi
import ("testing"; "unsafe")
func Test(t *testing.T) {
	for shift := range 8 {
		buf := make([]byte, 64)
		a := (*A)(unsafe.Pointer(&buf[shift]))
		a.SetWide(0x1122334455667788); a.SetUN(0xaabbccdd); a.X, a.Y = 1, 2
		if a.Wide() != 0x1122334455667788 || a.UN() != 0xaabbccdd || *a.UB() != buf[shift+9] || buf[shift+13] != 2 { t.Error(shift, buf) }
	}
}
`)
	files["go.mod"] = []byte("module abi\n\ngo 1.25\n")
	enum, err := os.ReadFile("../abi/enum.go")
	if err != nil {
		t.Fatal(err)
	}
	files["enum.go"] = enum
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-gcflags=-d=checkptr", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

package abi

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// A golden is what the headers of one kernel say; "gen-abi layout" wrote it.
type golden struct {
	Kernel  string                  `json:"kernel"`
	Structs map[string]goldenStruct `json:"structs"`
	Consts  []map[string]int64      `json:"consts"`
}

type goldenStruct struct {
	Size   int64               `json:"size"`
	Align  int64               `json:"align"`
	Fields map[string][2]int64 `json:"fields"` // C path: offset, size; size 0: flexible array
}

const newest = "7.2" // the kernel whose headers abi is generated from

func readGolden(t *testing.T, kernel string) golden {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "layout-"+kernel+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	if g.Kernel != kernel || len(g.Structs) < 150 || len(g.Consts) < 100 {
		t.Fatalf("golden of %s: got kernel %s with %d structs, %d enums", kernel, g.Kernel, len(g.Structs), len(g.Consts))
	}
	return g
}

// The ABI only grows: whatever an old kernel has, today's types have at the same
// place. The exceptions were looked into one by one; an entry that matches nothing
// fails the test too.
var exceptions = map[string]string{
	"5.10 mlx5_ib_match_params.match_params": "an array that grew from 512 to 640 bytes; user space says how much it passes",
	"5.10 rxe_recv_wqe.num_sge":              "became reserved; the kernel always took dma.num_sge",
	"5.10 rxe_send_wr.num_sge":               "became reserved; the kernel always took dma.num_sge",
	"5.10 rxe_send_wqe.wr":                   "grew by the address vector below; dma and all before keep their bytes",
	"5.10 rxe_send_wqe.av":                   "now wr.ud.av, at the same byte 56 of the request",
	"5.10 rxe_send_wr.wr":                    "grew by the address vector",
	"5.10 rxe_send_wr.wr.ud":                 "grew by the address vector",
	"5.10 rxe_send_wr.wr.reg":                "of the kernel's own use, taken out of the header",
	"5.10 rxe_send_wr.wr.reg.access":         "of the kernel's own use, taken out of the header",
	"5.10 rxe_send_wr.wr.reg.key":            "of the kernel's own use, taken out of the header",

	"5.10 IB_USER_LEGACY_LAST_QP_ATTR_MASK": "taken out of the header",
	"5.10 IB_USER_LAST_QP_ATTR_MASK":        "taken out of the header",
	"5.10 UVERBS_UDATA_DRIVER_DATA_NS":      "taken out of the header",
	"5.10 UVERBS_UDATA_DRIVER_DATA_FLAG":    "taken out of the header",
	"6.1 UVERBS_UDATA_DRIVER_DATA_NS":       "taken out of the header",
	"6.1 UVERBS_UDATA_DRIVER_DATA_FLAG":     "taken out of the header",
	"5.10 MLX5_IB_DW_MATCH_PARAM":           "counts the words of mlx5_ib_match_params",
	"5.10 RDMA_NL_NUM_GROUPS":               "counts an enum",
	"5.10 RDMA_NLDEV_NUM_OPS":               "counts an enum",
	"5.10 RDMA_NLDEV_ATTR_MAX":              "counts an enum",
	"6.1 RDMA_NL_NUM_GROUPS":                "counts an enum",
	"6.1 RDMA_NLDEV_NUM_OPS":                "counts an enum",
	"6.1 RDMA_NLDEV_ATTR_MAX":               "counts an enum",
	"6.12 RDMA_NLDEV_NUM_OPS":               "counts an enum",
	"6.12 RDMA_NLDEV_ATTR_MAX":              "counts an enum",
}

// reserved is a member that a later kernel may put to use.
var reserved = regexp.MustCompile(`(^|\.)(reserved|rsvd|pad)[0-9_]*$`)

func TestLayoutOfKernels(t *testing.T) {
	used := map[string]bool{}
	excused := func(key string) bool {
		used[key] = true
		return exceptions[key] != ""
	}
	for _, kernel := range []string{"5.10", "6.1", "6.12", newest} {
		t.Run(kernel, func(t *testing.T) {
			g := readGolden(t, kernel)
			for tag, want := range g.Structs {
				for _, diff := range compareStruct(goTypes[tag], want, kernel == newest) {
					if !excused(kernel + " " + tag + diff.path) {
						t.Errorf("%s%s: %s", tag, diff.path, diff.text)
					}
				}
			}
			compareConsts(t, g, excused)
		})
	}
	for key := range exceptions {
		if !used[key] {
			t.Errorf("exception %q is not needed", key)
		}
	}
}

// TestLayoutComplete fails if the newest golden lacks a type of the package.
func TestLayoutComplete(t *testing.T) {
	g := readGolden(t, newest)
	for tag := range goTypes {
		if _, ok := g.Structs[tag]; !ok {
			t.Errorf("%s is not in the golden layout", tag)
		}
	}
}

type difference struct{ path, text string }

// compareStruct compares a Go type with a C struct. A struct of an older kernel
// may be shorter, and what was reserved there may have a use now.
func compareStruct(typ reflect.Type, want goldenStruct, exact bool) (diffs []difference) {
	if typ == nil {
		return []difference{{"", "no Go type"}}
	}
	size := int64(typ.Size())
	if size < want.Size || exact && size != want.Size {
		diffs = append(diffs, difference{"", fmt.Sprintf("size: got %d, want %d", size, want.Size)})
	}
	// Where Go's uint64 has an alignment of 4, offsets are right all the same.
	if got := int64(typ.Align()); got != want.Align && reflect.TypeFor[uint64]().Align() == 8 {
		diffs = append(diffs, difference{"", fmt.Sprintf("alignment: got %d, want %d", got, want.Align)})
	}
	for path, at := range want.Fields {
		if !exact && reserved.MatchString(path) {
			continue
		}
		got, ok := locate(typ, path)
		switch {
		case at[1] == 0 && exact && size != at[0]:
			diffs = append(diffs, difference{"." + path, fmt.Sprintf("flexible array at %d, but the type ends at %d", at[0], size)})
		case at[1] == 0:
		case !ok:
			diffs = append(diffs, difference{"." + path, "no Go field or accessor"})
		case got != at:
			diffs = append(diffs, difference{"." + path, fmt.Sprintf("offset and size: got %d, want %d", got, at)})
		}
	}
	return diffs
}

// locate finds the member with a C path in a Go type, through fields and, in
// unions, through the accessor methods, which are called to see where they point.
func locate(typ reflect.Type, path string) (at [2]int64, ok bool) {
	root := reflect.New(typ)
	v, prefix := root, ""
	for seg := range strings.SplitSeq(path, ".") {
		if v.Elem().Kind() != reflect.Struct {
			return at, false
		}
		name := prefix + goName(seg)
		if f := v.Elem().FieldByName(name); f.IsValid() {
			next := f.Addr()
			if f.Kind() == reflect.Array && hasArms(v, name) {
				prefix = name // a union's blob: its members are methods of the parent
				at = [2]int64{int64(next.Pointer() - root.Pointer()), int64(f.Type().Size())}
				continue
			}
			v, prefix = next, ""
		} else if m := v.MethodByName(name); m.IsValid() {
			v, prefix = m.Call(nil)[0], ""
		} else {
			return at, false
		}
		at = [2]int64{int64(v.Pointer() - root.Pointer()), int64(v.Type().Elem().Size())}
	}
	return at, true
}

// hasArms tells a union's blob from an array.
func hasArms(v reflect.Value, blob string) bool {
	for i := range v.NumMethod() {
		if strings.HasPrefix(v.Type().Method(i).Name, blob) {
			return true
		}
	}
	return false
}

func goName(c string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(c, "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

func compareConsts(t *testing.T, g golden, excused func(string) bool) {
	have := constants(t)
	for _, group := range g.Consts {
		for name, want := range group {
			got, ok := have[name]
			if (!ok || got != want) && !excused(g.Kernel+" "+name) {
				t.Errorf("%s: got %d (present: %t), want %d", name, got, ok, want)
			}
		}
	}
}

// TestCompareStructSees breaks a layout on purpose: the comparison must tell.
func TestCompareStructSees(t *testing.T) {
	g := readGolden(t, newest)
	tests := []struct {
		name string
		edit func(*goldenStruct)
	}{
		{"offset of a field", func(s *goldenStruct) { s.Fields["status"] = [2]int64{20, 4} }},
		{"size of a field", func(s *goldenStruct) { s.Fields["status"] = [2]int64{16, 8} }},
		{"offset inside a union", func(s *goldenStruct) { s.Fields["param.conn"] = [2]int64{24, 272} }},
		{"field that is missing", func(s *goldenStruct) { s.Fields["param.nosuch"] = [2]int64{20, 4} }},
		{"size", func(s *goldenStruct) { s.Size++ }},
	}
	for _, tt := range tests {
		s := g.Structs["rdma_ucm_event_resp"]
		fields := map[string][2]int64{}
		for k, v := range s.Fields {
			fields[k] = v
		}
		s.Fields = fields
		if diffs := compareStruct(goTypes["rdma_ucm_event_resp"], s, true); len(diffs) > 0 {
			t.Fatalf("before: %v", diffs)
		}
		tt.edit(&s)
		if diffs := compareStruct(goTypes["rdma_ucm_event_resp"], s, true); len(diffs) != 1 {
			t.Errorf("%s: got %v, want one difference", tt.name, diffs)
		}
	}
}

package abi

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"testing"
)

// constants reads the generated constants, which are plain numbers, from the source.
func constants(t *testing.T) map[string]int64 {
	t.Helper()
	files, err := filepath.Glob("z*.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int64{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
				if lit, ok := v.Values[0].(*ast.BasicLit); ok {
					n, err := strconv.ParseUint(lit.Value, 0, 64)
					if err != nil {
						t.Errorf("%s = %s: %v", v.Names[0].Name, lit.Value, err)
					}
					out[v.Names[0].Name] = int64(n)
				}
			}
			return true
		})
	}
	return out
}

// Request numbers are _IOWR(0x1b, 1, 24 bytes). The generic encoding has two
// direction bits on top of fourteen of size; powerpc, mips, sparc and alpha have
// three on top of thirteen, and other values. "Both directions" comes out alike,
// which is why one constant serves all.
func TestVerbsIoctlNumber(t *testing.T) {
	const size, magic, nr = 24, RDMA_IOCTL_MAGIC, 1
	generic := uint32((1|2)<<30 | size<<16 | magic<<8 | nr)
	powerpc := uint32((2|4)<<29 | size<<16 | magic<<8 | nr)
	for name, want := range map[string]uint32{"generic": generic, "powerpc": powerpc} {
		if got := uint32(RDMA_VERBS_IOCTL); got != want {
			t.Errorf("RDMA_VERBS_IOCTL on %s: got %#x, want %#x", name, got, want)
		}
	}
}

func TestNetlinkType(t *testing.T) {
	typ := RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET)
	if want := uint16(5<<10 | 1); typ != want {
		t.Errorf("RDMA_NL_GET_TYPE: got %#x, want %#x", typ, want)
	}
	if got := RDMA_NL_GET_CLIENT(typ); got != RDMA_NL_NLDEV {
		t.Errorf("RDMA_NL_GET_CLIENT(%#x): got %d, want %d", typ, got, RDMA_NL_NLDEV)
	}
	if got := RDMA_NL_GET_OP(typ); got != RDMA_NLDEV_CMD_GET {
		t.Errorf("RDMA_NL_GET_OP(%#x): got %d, want %d", typ, got, RDMA_NLDEV_CMD_GET)
	}
}

func TestEnumString(t *testing.T) {
	tests := []struct {
		got  interface{ String() string }
		want string
	}{
		{IbUverbsWcOpcode(IB_UVERBS_WC_SEND), "IB_UVERBS_WC_SEND"}, // the zero value
		{IbUverbsWcOpcode(IB_UVERBS_WC_RDMA_READ), "IB_UVERBS_WC_RDMA_READ"},
		{IbUverbsWcOpcode(77), "ib_uverbs_wc_opcode(77)"},
		{IbUverbsAccessFlags(3), "ib_uverbs_access_flags(3)"}, // flags: no name for a sum
		{UverbsDefaultObjects(UVERBS_OBJECT_CQ), "UVERBS_OBJECT_CQ"},
		{IbUverbsDeviceCapFlags(1 << 36), "IB_UVERBS_DEVICE_PCI_WRITE_END_PADDING"}, // 64 bits wide
		{RdmaDriverId(RDMA_DRIVER_RXE), "RDMA_DRIVER_RXE"},
		{RdmaUcmPortSpace(RDMA_PS_TCP), "RDMA_PS_TCP"},
		{RdmaNldevAttr(1 << 20), "rdma_nldev_attr(1048576)"},
	}
	for _, tt := range tests {
		if got := tt.got.String(); got != tt.want {
			t.Errorf("%T.String(): got %q, want %q", tt.got, got, tt.want)
		}
	}
}

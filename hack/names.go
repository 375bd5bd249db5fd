package main

import "strings"

// camel turns a C name into a Go type or field name: every underscore-separated
// word is capitalised, initialisms stay as they are (cq_handle -> CqHandle).
func camel(c string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(c, "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// goScalars maps the scalar types of the facts to Go.
var goScalars = map[string]string{
	"u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
	"s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64",
	"be16": "BE16", "be32": "BE32", "be64": "BE64",
	"char": "uint8", // text or raw bytes, never a number
}

// zfiles names the output file of each input header. What only other headers
// need goes to zdeps.go.
var zfiles = map[string]string{
	"rdma/ib_user_verbs.h":         "zverbs.go",
	"rdma/ib_user_ioctl_cmds.h":    "zioctlcmds.go",
	"rdma/ib_user_ioctl_verbs.h":   "zioctlverbs.go",
	"rdma/rdma_user_ioctl.h":       "zioctlmad.go",
	"rdma/rdma_user_ioctl_cmds.h":  "zioctl.go",
	"rdma/rdma_user_cm.h":          "zucm.go",
	"rdma/rdma_netlink.h":          "znldev.go",
	"rdma/rdma_user_rxe.h":         "zrxe.go",
	"rdma/siw-abi.h":               "zsiw.go",
	"rdma/mlx5-abi.h":              "zmlx5.go",
	"rdma/mlx5_user_ioctl_cmds.h":  "zmlx5cmds.go",
	"rdma/mlx5_user_ioctl_verbs.h": "zmlx5verbs.go",
}

const (
	depsFile   = "zdeps.go"
	stringFile = "zstring.go"
	layoutFile = "zlayout.go"
	typesFile  = "ztypes_test.go"
)

// skipMacro leaves out request numbers that are not ours to mirror.
func skipMacro(d *Decl) bool {
	if strings.HasPrefix(d.Name, "HFI1_") || strings.HasPrefix(d.Name, "IB_USER_MAD_") {
		return true // of /dev/umad and hfi1; their arguments are declared in other headers
	}
	for _, dir := range []string{"_IO(", "_IOR(", "_IOW("} {
		if strings.HasPrefix(d.Text, dir) {
			return true // the value depends on the architecture; that of _IOWR does not
		}
	}
	return false
}

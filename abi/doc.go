// Package abi mirrors the kernel's user-space RDMA interface: the structs, enums
// and constants of include/uapi/rdma. All z files are generated from the headers
// named in them; hack/README.md says how. The package follows the kernel, not
// semantic versioning: a newer kernel may add to it.
//
// # Names
//
// Constants keep their C spelling and are untyped: [RDMA_VERBS_IOCTL],
// [UVERBS_METHOD_CQ_CREATE]. Types and fields take the C name with every word
// capitalised and no initialisms: struct ib_uverbs_create_cq_resp is
// [IbUverbsCreateCqResp], its cq_handle is CqHandle. A named enum is an unsigned
// type with a String method.
//
// # Layout
//
// Every type has the layout of 64-bit Linux, byte for byte, on every GOARCH:
// padding is explicit, and zlayout.go does not compile if an offset is off.
// Flexible arrays at the end of a struct are left out; they start right behind
// it. Fields in network order are [BE16], [BE32] and [BE64].
//
// A union is one field, of integers as aligned as the union, plus a method for
// each member that returns a pointer into it: struct rdma_ucm_event_resp's param
// is Param, its param.conn is [RdmaUcmEventResp.ParamConn]. The field of an
// anonymous union is called Union, and its members have no prefix:
// [IbUverbsAttr.Data]. Members of the kernel's own use (pointers) have no method.
//
// Types hold no Go pointers. Where a field carries an address, the caller must
// keep that memory in place (runtime.Pinner, or memory off the Go heap) for as
// long as the kernel may use it.
//
// # Request numbers
//
// The direction bits of ioctl numbers differ on powerpc, mips and sparc. That of
// [RDMA_VERBS_IOCTL] happens to be the same everywhere: "read and write" is 3<<30
// in the generic encoding and 6<<29 in the other. One-way requests (all of them
// of other devices) are left out.
package abi

//go:generate go -C ../hack run . generate

package uapi

import "github.com/pureverbs/rdma/abi"

// A Class says how an attribute travels.
type Class uint8

// The classes of core/uverbs_ioctl.c.
const (
	PtrIn   Class = iota // bytes to the kernel: by value up to 8, by address beyond
	PtrOut               // bytes from the kernel, always by address
	ConstIn              // a number, by value, 8 bytes
	FlagsIn              // a bit set, by value, 4 or 8 bytes
	Use                  // handle of an object that the method uses
	New                  // handle of an object that the method makes; the kernel writes it
	Destroy              // handle of an object that the method ends
	UseFD                // descriptor that the method uses
	NewFD                // descriptor that the method makes; the kernel writes it
)

// NoLimit as Attr.Max admits any length.
const NoLimit = 1 << 16

// An Attr is one attribute of a method.
type Attr struct {
	ID       uint16
	Class    Class
	Min, Max int    // length in bytes, for PtrIn and PtrOut
	Object   uint16 // kind of object, for handles and descriptors
	Must     bool   // the kernel refuses the request without it
	Tail     bool   // PtrIn: longer is accepted where the excess is zero; PtrOut: the excess is cleared
}

// A Method is one method of an object and all its attributes.
type Method struct {
	Object, ID uint16
	Name       string
	Attrs      []Attr
	UHW        bool // carries the driver's own input and output
}

// Attr returns the attribute with the given id, nil if the method has none.
func (m *Method) Attr(id uint16) *Attr {
	for i := range m.Attrs {
		if m.Attrs[i].ID == id {
			return &m.Attrs[i]
		}
	}
	if m.UHW {
		switch id {
		case abi.UVERBS_ATTR_UHW_IN:
			return &uhwIn
		case abi.UVERBS_ATTR_UHW_OUT:
			return &uhwOut
		}
	}
	return nil
}

var (
	uhwIn  = Attr{ID: abi.UVERBS_ATTR_UHW_IN, Class: PtrIn, Max: NoLimit, Tail: true}
	uhwOut = Attr{ID: abi.UVERBS_ATTR_UHW_OUT, Class: PtrOut, Max: NoLimit, Tail: true}
)

// Lookup finds a method by the numbers of a request, nil if the schema has none.
func Lookup(object, method uint16) *Method {
	for _, m := range schema {
		if m.Object == object && m.ID == method {
			return m
		}
	}
	return nil
}

func in(id uint16, size int) Attr {
	return Attr{ID: id, Class: PtrIn, Min: size, Max: size, Must: true}
}
func out(id uint16, size int) Attr {
	return Attr{ID: id, Class: PtrOut, Min: size, Max: size, Must: true}
}
func number(id uint16) Attr         { return Attr{ID: id, Class: ConstIn, Must: true} }
func flags(id uint16) Attr          { return Attr{ID: id, Class: FlagsIn} }
func use(id, object uint16) Attr    { return Attr{ID: id, Class: Use, Object: object, Must: true} }
func create(id, object uint16) Attr { return Attr{ID: id, Class: New, Object: object, Must: true} }
func destroyed(id, object uint16) Attr {
	return Attr{ID: id, Class: Destroy, Object: object, Must: true}
}
func fd(id, object uint16) Attr { return Attr{ID: id, Class: UseFD, Object: object} }
func optional(a Attr) Attr      { a.Must = false; return a }
func tail(a Attr) Attr          { a.Max, a.Tail = NoLimit, true; return a }

// The methods this module uses.
var (
	InvokeWrite = &Method{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_INVOKE_WRITE, "invoke write", []Attr{
		number(abi.UVERBS_ATTR_WRITE_CMD),
		optional(tail(in(abi.UVERBS_ATTR_CORE_IN, 4))),
		optional(tail(out(abi.UVERBS_ATTR_CORE_OUT, 0))),
	}, true}
	GetContext = &Method{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_GET_CONTEXT, "get context", []Attr{
		optional(out(abi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, 4)),
		optional(out(abi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, 8)),
	}, true}
	QueryPort = &Method{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT, "query port", []Attr{
		number(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM),
		tail(out(abi.UVERBS_ATTR_QUERY_PORT_RESP, 44)),
	}, false}
	QueryGIDTable = &Method{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_GID_TABLE, "query GID table", []Attr{
		number(abi.UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE),
		flags(abi.UVERBS_ATTR_QUERY_GID_TABLE_FLAGS),
		tail(out(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, 0)),
		out(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, 8),
	}, false}
	QueryGIDEntry = &Method{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_GID_ENTRY, "query GID entry", []Attr{
		number(abi.UVERBS_ATTR_QUERY_GID_ENTRY_PORT),
		number(abi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX),
		{ID: abi.UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, Class: FlagsIn, Must: true},
		tail(out(abi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, 32)),
	}, false}
	PDDestroy = &Method{abi.UVERBS_OBJECT_PD, abi.UVERBS_METHOD_PD_DESTROY, "destroy protection domain", []Attr{
		destroyed(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, abi.UVERBS_OBJECT_PD),
	}, false}
	MRDestroy = &Method{abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_MR_DESTROY, "deregister memory region", []Attr{
		destroyed(abi.UVERBS_ATTR_DESTROY_MR_HANDLE, abi.UVERBS_OBJECT_MR),
	}, false}
	CQCreate = &Method{abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE, "create completion queue", []Attr{
		create(abi.UVERBS_ATTR_CREATE_CQ_HANDLE, abi.UVERBS_OBJECT_CQ),
		in(abi.UVERBS_ATTR_CREATE_CQ_CQE, 4),
		in(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8),
		fd(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, abi.UVERBS_OBJECT_COMP_CHANNEL),
		in(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 4),
		flags(abi.UVERBS_ATTR_CREATE_CQ_FLAGS),
		out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4),
		fd(abi.UVERBS_ATTR_CREATE_CQ_EVENT_FD, abi.UVERBS_OBJECT_ASYNC_EVENT),
		optional(in(abi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX, 4)), // mlx5 only, since 6.12
	}, true}
	CQDestroy = &Method{abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_DESTROY, "destroy completion queue", []Attr{
		destroyed(abi.UVERBS_ATTR_DESTROY_CQ_HANDLE, abi.UVERBS_OBJECT_CQ),
		out(abi.UVERBS_ATTR_DESTROY_CQ_RESP, 8),
	}, false}
	QPCreate = &Method{abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_CREATE, "create queue pair", []Attr{
		create(abi.UVERBS_ATTR_CREATE_QP_HANDLE, abi.UVERBS_OBJECT_QP),
		optional(use(abi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, abi.UVERBS_OBJECT_PD)),
		optional(use(abi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, abi.UVERBS_OBJECT_SRQ)),
		optional(use(abi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, abi.UVERBS_OBJECT_CQ)),
		optional(use(abi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, abi.UVERBS_OBJECT_CQ)),
		in(abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE, 8),
		tail(in(abi.UVERBS_ATTR_CREATE_QP_CAP, 20)),
		number(abi.UVERBS_ATTR_CREATE_QP_TYPE),
		flags(abi.UVERBS_ATTR_CREATE_QP_FLAGS),
		fd(abi.UVERBS_ATTR_CREATE_QP_EVENT_FD, abi.UVERBS_OBJECT_ASYNC_EVENT),
		tail(out(abi.UVERBS_ATTR_CREATE_QP_RESP_CAP, 20)),
		out(abi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4),
	}, true}
	QPDestroy = &Method{abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_DESTROY, "destroy queue pair", []Attr{
		destroyed(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, abi.UVERBS_OBJECT_QP),
		out(abi.UVERBS_ATTR_DESTROY_QP_RESP, 4),
	}, false}
	SRQCreate = &Method{abi.UVERBS_OBJECT_SRQ, abi.UVERBS_METHOD_SRQ_CREATE, "create shared receive queue", []Attr{
		create(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE, abi.UVERBS_OBJECT_SRQ),
		use(abi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, abi.UVERBS_OBJECT_PD),
		number(abi.UVERBS_ATTR_CREATE_SRQ_TYPE),
		in(abi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, 8),
		in(abi.UVERBS_ATTR_CREATE_SRQ_MAX_WR, 4),
		in(abi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE, 4),
		in(abi.UVERBS_ATTR_CREATE_SRQ_LIMIT, 4),
		fd(abi.UVERBS_ATTR_CREATE_SRQ_EVENT_FD, abi.UVERBS_OBJECT_ASYNC_EVENT),
		out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, 4),
		out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, 4),
		optional(out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, 4)),
	}, true}
	SRQDestroy = &Method{abi.UVERBS_OBJECT_SRQ, abi.UVERBS_METHOD_SRQ_DESTROY, "destroy shared receive queue", []Attr{
		destroyed(abi.UVERBS_ATTR_DESTROY_SRQ_HANDLE, abi.UVERBS_OBJECT_SRQ),
		out(abi.UVERBS_ATTR_DESTROY_SRQ_RESP, 4),
	}, false}
	AHDestroy = &Method{abi.UVERBS_OBJECT_AH, abi.UVERBS_METHOD_AH_DESTROY, "destroy address handle", []Attr{
		destroyed(abi.UVERBS_ATTR_DESTROY_AH_HANDLE, abi.UVERBS_OBJECT_AH),
	}, false}
	MWDestroy = &Method{abi.UVERBS_OBJECT_MW, abi.UVERBS_METHOD_MW_DESTROY, "free memory window", []Attr{
		destroyed(abi.UVERBS_ATTR_DESTROY_MW_HANDLE, abi.UVERBS_OBJECT_MW),
	}, false}
	XRCDDestroy = &Method{abi.UVERBS_OBJECT_XRCD, abi.UVERBS_METHOD_XRCD_DESTROY, "close XRC domain", []Attr{
		destroyed(abi.UVERBS_ATTR_DESTROY_XRCD_HANDLE, abi.UVERBS_OBJECT_XRCD),
	}, false}
	WQCreate = &Method{abi.UVERBS_OBJECT_WQ, abi.UVERBS_METHOD_WQ_CREATE, "create work queue", []Attr{
		create(abi.UVERBS_ATTR_CREATE_WQ_HANDLE, abi.UVERBS_OBJECT_WQ),
		use(abi.UVERBS_ATTR_CREATE_WQ_PD_HANDLE, abi.UVERBS_OBJECT_PD),
		number(abi.UVERBS_ATTR_CREATE_WQ_TYPE),
		in(abi.UVERBS_ATTR_CREATE_WQ_USER_HANDLE, 8),
		in(abi.UVERBS_ATTR_CREATE_WQ_MAX_WR, 4),
		in(abi.UVERBS_ATTR_CREATE_WQ_MAX_SGE, 4),
		{ID: abi.UVERBS_ATTR_CREATE_WQ_FLAGS, Class: FlagsIn, Must: true},
		optional(use(abi.UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, abi.UVERBS_OBJECT_CQ)),
		out(abi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, 4),
		out(abi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, 4),
		optional(out(abi.UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, 4)),
	}, true}
	FlowDestroy = &Method{abi.UVERBS_OBJECT_FLOW, abi.UVERBS_METHOD_FLOW_DESTROY, "destroy flow", []Attr{
		destroyed(abi.UVERBS_ATTR_DESTROY_FLOW_HANDLE, abi.UVERBS_OBJECT_FLOW),
	}, false}
	WQDestroy = &Method{abi.UVERBS_OBJECT_WQ, abi.UVERBS_METHOD_WQ_DESTROY, "destroy work queue", []Attr{
		destroyed(abi.UVERBS_ATTR_DESTROY_WQ_HANDLE, abi.UVERBS_OBJECT_WQ),
		out(abi.UVERBS_ATTR_DESTROY_WQ_RESP, 4),
	}, false}
	RegDMABufMR = &Method{abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_REG_DMABUF_MR, "register dma-buf memory region", []Attr{
		create(abi.UVERBS_ATTR_REG_DMABUF_MR_HANDLE, abi.UVERBS_OBJECT_MR),
		use(abi.UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, abi.UVERBS_OBJECT_PD),
		in(abi.UVERBS_ATTR_REG_DMABUF_MR_OFFSET, 8),
		in(abi.UVERBS_ATTR_REG_DMABUF_MR_LENGTH, 8),
		in(abi.UVERBS_ATTR_REG_DMABUF_MR_IOVA, 8),
		in(abi.UVERBS_ATTR_REG_DMABUF_MR_FD, 4),
		flags(abi.UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS),
		out(abi.UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, 4),
		out(abi.UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, 4),
	}, false}
	AdviseMR = &Method{abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_ADVISE_MR, "advise on memory region", []Attr{
		use(abi.UVERBS_ATTR_ADVISE_MR_PD_HANDLE, abi.UVERBS_OBJECT_PD),
		number(abi.UVERBS_ATTR_ADVISE_MR_ADVICE),
		{ID: abi.UVERBS_ATTR_ADVISE_MR_FLAGS, Class: FlagsIn, Must: true},
		{ID: abi.UVERBS_ATTR_ADVISE_MR_SGE_LIST, Class: PtrIn, Min: 16, Max: NoLimit, Must: true}, // a list, not a struct that grew
	}, false}
	QueryPortSpeed = &Method{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT_SPEED, "query port speed", []Attr{
		number(abi.UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM),
		out(abi.UVERBS_ATTR_QUERY_PORT_SPEED_RESP, 8),
	}, false}
	AsyncEventAlloc = &Method{abi.UVERBS_OBJECT_ASYNC_EVENT, abi.UVERBS_METHOD_ASYNC_EVENT_ALLOC, "allocate event channel", []Attr{
		{ID: abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, Class: NewFD, Object: abi.UVERBS_OBJECT_ASYNC_EVENT, Must: true},
	}, false}

	// Pages of registers are objects of mlx5.
	UARAlloc = &Method{abi.MLX5_IB_OBJECT_UAR, abi.MLX5_IB_METHOD_UAR_OBJ_ALLOC, "allocate registers", []Attr{
		create(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, abi.MLX5_IB_OBJECT_UAR),
		number(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE),
		out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, 8),
		out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, 4),
		out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, 4),
	}, false}
	UARDestroy = &Method{abi.MLX5_IB_OBJECT_UAR, abi.MLX5_IB_METHOD_UAR_OBJ_DESTROY, "free registers", []Attr{
		destroyed(abi.MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, abi.MLX5_IB_OBJECT_UAR),
	}, false}

	schema = []*Method{
		InvokeWrite, GetContext, QueryPort, QueryGIDTable, QueryGIDEntry, PDDestroy, MRDestroy,
		CQCreate, CQDestroy, QPCreate, QPDestroy, SRQCreate, SRQDestroy, AHDestroy, MWDestroy, XRCDDestroy,
		WQCreate, WQDestroy, FlowDestroy, RegDMABufMR, AdviseMR, QueryPortSpeed, AsyncEventAlloc,
		UARAlloc, UARDestroy,
	}
)

// A WriteCmd is one command of the write interface, issued by InvokeWrite: its number and
// the least the kernel takes and gives, in bytes, without the driver's parts.
type WriteCmd struct {
	ID      uint32
	Name    string
	In, Out int
}

// The write commands this module uses: those with no ioctl method of their own.
var (
	QueryDevice       = &WriteCmd{abi.IB_USER_VERBS_CMD_QUERY_DEVICE, "query device", 8, 176}
	QueryDeviceEx     = &WriteCmd{ExCmd | abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE, "query device", 8, 184}
	AllocPD           = &WriteCmd{abi.IB_USER_VERBS_CMD_ALLOC_PD, "allocate protection domain", 8, 4}
	RegMR             = &WriteCmd{abi.IB_USER_VERBS_CMD_REG_MR, "register memory region", 40, 12}
	CreateCompChannel = &WriteCmd{abi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, "create completion channel", 8, 4}
	ReqNotifyCQ       = &WriteCmd{abi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, "arm completion queue", 8, 0}
	ModifyQP          = &WriteCmd{abi.IB_USER_VERBS_CMD_MODIFY_QP, "modify queue pair", 112, 0}
	QueryQP           = &WriteCmd{abi.IB_USER_VERBS_CMD_QUERY_QP, "query queue pair", 16, 128}
	PostSend          = &WriteCmd{abi.IB_USER_VERBS_CMD_POST_SEND, "post send", 24, 4}

	CreateAH    = &WriteCmd{abi.IB_USER_VERBS_CMD_CREATE_AH, "create address handle", 56, 4}
	ReregMR     = &WriteCmd{abi.IB_USER_VERBS_CMD_REREG_MR, "re-register memory region", 48, 8}
	AllocMW     = &WriteCmd{abi.IB_USER_VERBS_CMD_ALLOC_MW, "allocate memory window", 16, 8}
	ResizeCQ    = &WriteCmd{abi.IB_USER_VERBS_CMD_RESIZE_CQ, "resize completion queue", 16, 8}
	AttachMcast = &WriteCmd{abi.IB_USER_VERBS_CMD_ATTACH_MCAST, "attach to multicast group", 24, 0}
	DetachMcast = &WriteCmd{abi.IB_USER_VERBS_CMD_DETACH_MCAST, "detach from multicast group", 24, 0}
	ModifySRQ   = &WriteCmd{abi.IB_USER_VERBS_CMD_MODIFY_SRQ, "modify shared receive queue", 16, 0}
	QuerySRQ    = &WriteCmd{abi.IB_USER_VERBS_CMD_QUERY_SRQ, "query shared receive queue", 16, 16}
	OpenXRCD    = &WriteCmd{abi.IB_USER_VERBS_CMD_OPEN_XRCD, "open XRC domain", 16, 4}
	CreateFlow  = &WriteCmd{ExCmd | abi.IB_USER_VERBS_EX_CMD_CREATE_FLOW, "create flow", 24, 8}
	ModifyCQ    = &WriteCmd{ExCmd | abi.IB_USER_VERBS_EX_CMD_MODIFY_CQ, "modify completion queue", 16, 0}

	writeCmds = []*WriteCmd{
		QueryDevice, QueryDeviceEx, AllocPD, RegMR, CreateCompChannel, ReqNotifyCQ, ModifyQP, QueryQP, PostSend,
		CreateAH, ReregMR, AllocMW, ResizeCQ, AttachMcast, DetachMcast, ModifySRQ, QuerySRQ, OpenXRCD, CreateFlow, ModifyCQ,
	}
)

// ExCmd marks the number of an extended write command.
const ExCmd = 0x80000000

// LookupWrite finds a write command by its number, nil if this module uses none of it.
func LookupWrite(id uint32) *WriteCmd {
	for _, w := range writeCmds {
		if w.ID == id {
			return w
		}
	}
	return nil
}

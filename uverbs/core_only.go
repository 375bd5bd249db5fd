package uverbs

import (
	"fmt"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// XRC domains, work queues and flow steering: the calls of the kernel's core. None of the
// devices that this package drives offers them, so on those they answer ErrNotSupported.

// XRCD is a domain of extended reliable connections, in which processes share receive
// queues.
type XRCD struct {
	object
	ctx    *Context
	handle uint32
}

// OpenXRCD opens the domain of the file fd, or with fd -1 one for this process. create makes
// it where it is missing; exclusive fails where it exists. Source: ibv_open_xrcd(3).
func (c *Context) OpenXRCD(fd int, create, exclusive bool) (*XRCD, error) {
	const op = "open XRC domain"
	if err := c.begin(op); err != nil {
		return nil, err
	}
	defer c.end()
	in := abi.IbUverbsOpenXrcd{Fd: uint32(int32(fd))}
	if create {
		in.Oflags |= openCreate
	}
	if exclusive {
		in.Oflags |= openExclusive
	}
	var resp abi.IbUverbsOpenXrcdResp
	if err := c.k.invoke(uapi.OpenXRCD, uapi.Bytes(&in), uapi.Bytes(&resp)); err != nil {
		return nil, coreError(op, c.device, err)
	}
	x := &XRCD{object: object{kind: "XRC domain", device: c.device}, ctx: c, handle: resp.XrcdHandle}
	if err := x.adopt(x, &c.object); err != nil {
		x.destroy()
		return nil, err
	}
	return x, nil
}

// O_CREAT and O_EXCL as the kernel reads them in the command.
const (
	openCreate    = 0o100
	openExclusive = 0o200
)

func (x *XRCD) String() string { return "XRC domain" }

// Close closes the domain. Source: ibv_close_xrcd(3).
func (x *XRCD) Close() error { return x.object.close(x, x.destroy) }

func (x *XRCD) destroy() error {
	cmd := x.ctx.k.command(uapi.XRCDDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_XRCD_HANDLE, x.handle)
	return gone(cmd.Do(x.ctx.k.file))
}

// WQInitAttr says how a work queue is to be made.
type WQInitAttr struct {
	CQ            *CQ
	MaxWR, MaxSGE uint32
}

// WQ is a receive queue for receive side scaling.
type WQ struct {
	object
	pd     *PD
	handle uint32
}

// CreateWQ makes a work queue. Posting to it needs a driver that this package does not have
// yet. Source: ibv_create_wq(3).
func (p *PD) CreateWQ(attr *WQInitAttr) (*WQ, error) {
	const op = "create work queue"
	if attr.CQ == nil || attr.CQ.ctx != p.ctx {
		return nil, invalid(op, p.device, "a completion queue of another context, or none")
	}
	if err := p.begin(op); err != nil {
		return nil, err
	}
	defer p.end()
	var maxWR, maxSGE uint32
	cmd := p.ctx.k.command(uapi.WQCreate).
		New(abi.UVERBS_ATTR_CREATE_WQ_HANDLE).
		Use(abi.UVERBS_ATTR_CREATE_WQ_PD_HANDLE, p.handle).
		Const(abi.UVERBS_ATTR_CREATE_WQ_TYPE, abi.IB_UVERBS_WQT_RQ).
		In64(abi.UVERBS_ATTR_CREATE_WQ_USER_HANDLE, 0).
		In32(abi.UVERBS_ATTR_CREATE_WQ_MAX_WR, attr.MaxWR).
		In32(abi.UVERBS_ATTR_CREATE_WQ_MAX_SGE, attr.MaxSGE).
		Flags(abi.UVERBS_ATTR_CREATE_WQ_FLAGS, 0).
		Use(abi.UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, attr.CQ.handle).
		Out(abi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, uapi.Bytes(&maxWR)).
		Out(abi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, uapi.Bytes(&maxSGE))
	if err := cmd.Do(p.ctx.k.file); err != nil {
		return nil, coreError(op, p.device, err)
	}
	w := &WQ{
		object: object{kind: "work queue", device: p.device}, pd: p, handle: cmd.Result(abi.UVERBS_ATTR_CREATE_WQ_HANDLE),
	}
	if err := w.adopt(w, &p.object, &attr.CQ.object); err != nil {
		w.destroy()
		return nil, err
	}
	return w, nil
}

func (w *WQ) String() string { return "work queue" }

// Close destroys the queue. Source: ibv_destroy_wq(3).
func (w *WQ) Close() error { return w.object.close(w, w.destroy) }

func (w *WQ) destroy() error {
	var resp uint32
	return gone(w.pd.ctx.k.command(uapi.WQDestroy).
		Destroy(abi.UVERBS_ATTR_DESTROY_WQ_HANDLE, w.handle).
		Out(abi.UVERBS_ATTR_DESTROY_WQ_RESP, uapi.Bytes(&resp)).Do(w.pd.ctx.k.file))
}

// Flow is a rule that steers packets to a queue pair.
type Flow struct {
	object
	qp     *QP
	handle uint32
}

// CreateFlow steers all packets of a port that no other rule takes to the queue pair.
// Needs CAP_NET_RAW. Source: ibv_create_flow(3).
func (q *QP) CreateFlow(port uint8, priority uint16) (*Flow, error) {
	const op = "create flow"
	if err := q.begin(op); err != nil {
		return nil, err
	}
	defer q.end()
	in := abi.IbUverbsCreateFlow{QpHandle: q.handle, FlowAttr: abi.IbUverbsFlowAttr{
		Type: flowAllDefault, Priority: priority, Port: port,
	}}
	var resp abi.IbUverbsCreateFlowResp
	if err := q.ctx.k.invoke(uapi.CreateFlow, uapi.Bytes(&in), uapi.Bytes(&resp)); err != nil {
		return nil, coreError(op, q.device, err)
	}
	f := &Flow{object: object{kind: "flow", device: q.device}, qp: q, handle: resp.FlowHandle}
	if err := f.adopt(f, &q.object); err != nil {
		f.destroy()
		return nil, err
	}
	return f, nil
}

// flowAllDefault is IB_FLOW_ATTR_ALL_DEFAULT of enum ib_flow_attr_type.
const flowAllDefault = 1

func (f *Flow) String() string { return "flow" }

// Close removes the rule. Source: ibv_destroy_flow(3).
func (f *Flow) Close() error { return f.object.close(f, f.destroy) }

func (f *Flow) destroy() error {
	k := f.qp.ctx.k
	return gone(k.command(uapi.FlowDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_FLOW_HANDLE, f.handle).Do(k.file))
}

// coreError names the device as the reason where the kernel says that a method is missing.
func coreError(op, device string, err error) error {
	why := hint(err)
	if missing(err) {
		why = fmt.Sprintf("the driver of %s does not have it", device)
	}
	return &Error{Op: op, Object: device, Err: cause(err), Hint: why}
}

package uverbs

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/uapi"
)

// Dest is where a datagram goes; [AH.Dest] makes it.
type Dest = provider.Dest

// AH is an address handle: the way to a port, for datagrams. It must stay open until the
// datagrams sent with it have completed: some devices look it up when they send.
type AH struct {
	object
	pd     *PD
	handle uint32
	attr   AHAttr
	av     *provider.AV
}

// CreateAH makes an address handle. On Ethernet IsGlobal must be set and SGIDIndex name an
// entry of the port's GID table; the kernel finds the peer's link-layer address, which can
// block for about a second, uninterruptibly.
//
// Errors: EINVAL for an empty GID table entry; ENETUNREACH and the like if the peer cannot
// be reached; ErrNotSupported on devices without datagrams (siw). Source:
// ibv_create_ah(3).
func (p *PD) CreateAH(attr *AHAttr) (*AH, error) {
	const op = "create address handle"
	if p.ctx.k.driver == abi.RDMA_DRIVER_SIW {
		return nil, wrap(op, p.device, fmt.Errorf("%w: the device has no datagrams", ErrNotSupported))
	}
	port, err := p.ctx.QueryPort(attr.PortNum)
	if err != nil {
		return nil, wrap(op, p.device, err)
	}
	if err := p.begin(op); err != nil {
		return nil, err
	}
	defer p.end()
	in := abi.IbUverbsCreateAh{PdHandle: p.handle, Attr: attr.ahKernel()}
	var (
		resp abi.IbUverbsCreateAhResp
		plan rxe.AHPlan
		k    = p.ctx.k
	)
	if err := uapi.Invoke(k.file, k.driver, uapi.CreateAH, uapi.Bytes(&in), uapi.Bytes(&resp), nil, plan.Out()); err != nil {
		return nil, &Error{Op: op, Object: p.device, Err: cause(err), Hint: modifyHint(err, StateRTR)}
	}
	h := &AH{
		object: object{kind: "address handle", device: p.device}, pd: p, handle: resp.AhHandle, attr: *attr,
		av: &provider.AV{PD: p, MTU: uint32(port.ActiveMTU.Bytes())},
	}
	if err := h.fill(&plan); err != nil {
		h.destroy()
		return nil, wrap(op, p.device, err)
	}
	if err := h.adopt(h, &p.object); err != nil {
		h.destroy()
		return nil, err
	}
	return h, nil
}

// fill makes the address vector. Kernels before 5.17 want all of it from the user.
func (h *AH) fill(plan *rxe.AHPlan) error {
	a := &h.attr
	w := &rxe.Way{
		Port: a.PortNum, DGID: a.DGID, SGIDIndex: a.SGIDIndex, HopLimit: a.HopLimit, TrafficClass: a.TrafficClass,
		FlowLabel: a.FlowLabel,
	}
	if !plan.Numbered() {
		e, err := h.pd.ctx.queryGID(a.PortNum, int(a.SGIDIndex))
		if err != nil {
			return err
		}
		w.SGID = e.GID
		w.DMAC = h.pd.ctx.linkAddr(a.DGID, e.IfIndex)
	}
	plan.Fill(h.av, w)
	return nil
}

// linkAddr is the link-layer address that the driver of kernels before 5.17 decides by
// whether a datagram stays on this device: its own address for itself, the group's for a
// multicast group. For all others the kernel routes by IP, and any address does.
func (c *Context) linkAddr(dgid GID, ifIndex int) (mac [6]byte) {
	switch addr := dgid.Addr(); {
	case addr.IsMulticast():
		return multicastMAC(addr)
	case !c.isOwn(dgid):
		return mac
	}
	if ifi, err := net.InterfaceByIndex(ifIndex); err == nil {
		copy(mac[:], ifi.HardwareAddr)
	}
	return mac
}

func (c *Context) isOwn(gid GID) bool {
	table, err := c.GIDTable()
	if err != nil {
		return false
	}
	for i := range table {
		if table[i].GID == gid {
			return true
		}
	}
	return false
}

// multicastMAC maps a group's address to the link layer (RFC 1112, RFC 2464).
func multicastMAC(addr netip.Addr) [6]byte {
	raw := addr.As16()
	if addr.Is4() {
		return [6]byte{0x01, 0x00, 0x5e, raw[13] & 0x7f, raw[14], raw[15]}
	}
	return [6]byte{0x33, 0x33, raw[12], raw[13], raw[14], raw[15]}
}

// Attr is what the address handle was made from.
func (h *AH) Attr() AHAttr { return h.attr }

// Dest is queue pair qpn, with Q_Key qkey, at the address: for SendWR.Dest.
func (h *AH) Dest(qpn, qkey uint32) Dest { return Dest{AV: h.av, QPN: qpn, QKey: qkey} }

func (h *AH) String() string { return "address handle" }

// Close destroys the address handle. Closing again does nothing. Source: ibv_destroy_ah(3).
func (h *AH) Close() error { return h.object.close(h, h.destroy) }

func (h *AH) destroy() error {
	cmd := h.pd.ctx.k.command(uapi.AHDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_AH_HANDLE, h.handle)
	return gone(cmd.Do(h.pd.ctx.k.file))
}

func (a *AHAttr) ahKernel() abi.IbUverbsAhAttr {
	return abi.IbUverbsAhAttr{
		Grh: abi.IbUverbsGlobalRoute{
			Dgid: a.DGID, FlowLabel: a.FlowLabel, SgidIndex: a.SGIDIndex, HopLimit: a.HopLimit, TrafficClass: a.TrafficClass,
		},
		Dlid: a.DLID, Sl: a.SL, SrcPathBits: a.SrcPathBits, StaticRate: a.StaticRate,
		IsGlobal: bit(a.IsGlobal), PortNum: a.PortNum,
	}
}

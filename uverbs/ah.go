package uverbs

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/mlx5"
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
	h := &AH{
		object: object{kind: "address handle", device: p.device}, pd: p, attr: *attr,
		av: &provider.AV{PD: p, MTU: uint32(port.ActiveMTU.Bytes())},
	}
	var resp abi.IbUverbsCreateAhResp
	k := p.ctx.k
	out, fill := h.plan(port.Ethernet)
	if err := uapi.Invoke(k.file, k.driver, uapi.CreateAH, uapi.Bytes(&in), uapi.Bytes(&resp), nil, out); err != nil {
		return nil, &Error{Op: op, Object: p.device, Err: cause(err), Hint: modifyHint(err, StateRTR)}
	}
	h.handle = resp.AhHandle
	if err := fill(); err != nil {
		h.destroy()
		return nil, wrap(op, p.device, err)
	}
	if err := h.adopt(h, &p.object); err != nil {
		h.destroy()
		return nil, err
	}
	return h, nil
}

// plan is the memory for the driver's answer, and what makes the address vector of it.
func (h *AH) plan(ethernet bool) (out []byte, fill func() error) {
	if h.pd.ctx.k.driver == abi.RDMA_DRIVER_MLX5 {
		p := new(mlx5.AHPlan)
		return p.Out(), func() error { return h.fillMLX5(p, ethernet) }
	}
	p := new(rxe.AHPlan)
	return p.Out(), func() error { return h.fillRXE(p) }
}

// fillMLX5: the device wants all of it, and of the kernel only what it found out.
func (h *AH) fillMLX5(p *mlx5.AHPlan, ethernet bool) error {
	a := &h.attr
	w := &mlx5.Way{
		Ethernet: ethernet, Global: a.IsGlobal, DGID: a.DGID, SGIDIndex: a.SGIDIndex, HopLimit: a.HopLimit,
		TrafficClass: a.TrafficClass, FlowLabel: a.FlowLabel, SL: a.SL, StaticRate: a.StaticRate, PathBits: a.SrcPathBits,
		DLID: a.DLID, DMAC: p.DMAC(),
	}
	if ethernet {
		e, err := h.pd.ctx.queryGID(a.PortNum, int(a.SGIDIndex))
		if err != nil {
			return err
		}
		w.UDP = e.Type == GIDTypeRoCEv2
	}
	mlx5.FillAV(h.av, w)
	return nil
}

// fillRXE: kernels before 5.17 want all of it from the user.
func (h *AH) fillRXE(plan *rxe.AHPlan) error {
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

package uverbs

import (
	"fmt"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// DeviceAttr is what a device can do: struct ibv_device_attr. Limits are counts of objects
// unless the name says otherwise.
type DeviceAttr struct {
	FirmwareVersion         uint64 // the driver's encoding
	NodeGUID, SystemGUID    uint64 // host byte order
	MaxMRSize               uint64 // bytes
	PageSizeCap             uint64
	VendorID, PartID, HWVer uint32
	MaxQP, MaxQPWR          uint32
	CapFlags                uint32
	MaxSGE, MaxSGERead      uint32
	MaxCQ, MaxCQE           uint32
	MaxMR, MaxPD, MaxMW     uint32
	MaxQPRDAtom             uint32 // READs and atomics in flight to one queue pair
	MaxResRDAtom            uint32
	MaxQPInitRDAtom         uint32 // READs and atomics in flight from one queue pair
	AtomicCap               uint32
	MaxMcastGroup, MaxAH    uint32
	MaxSRQ, MaxSRQWR        uint32
	MaxSRQSGE               uint32
	MaxPKeys                uint16
	AckDelay                uint8 // 4.096 µs * 2^AckDelay
	NumPorts                uint8
	MaxMcastQPAttach        uint32 // queue pairs of one multicast group

	// What only the extended query tells; 0 on a kernel or driver without it.
	CapFlagsEx               uint64
	TimestampMask, CoreClock uint64
	ODPCaps                  uint64 // on-demand paging: enum ib_odp_general_capability_bits
	ODPCapsRC, ODPCapsUC     uint32 // and what it can do for a type of queue pair
	ODPCapsUD                uint32
	RSSQPTypes               uint32 // set of the types that can share receive load
	MaxRSSTables             uint32
	MaxRSSTableSize          uint32
	MaxWQTypeRQ              uint32
	RawPacketCaps            uint32
	MaxTagMatching           uint32 // tags of one SRQ
	MaxModerationCount       uint16 // of CQ.Modify
	MaxModerationPeriod      uint16
	MaxDeviceMemory          uint64 // bytes
}

// QueryDevice tells what the device can do, for which the kernel is asked once. A kernel without
// the extended query answers the basic one, and what only the former tells is 0.
// Source: ibv_query_device_ex(3).
func (c *Context) QueryDevice() (DeviceAttr, error) {
	const op = "query device"
	if err := c.begin(op); err != nil {
		return DeviceAttr{}, err
	}
	defer c.end()
	if a := c.attr.Load(); a != nil {
		return *a, nil
	}
	a, err := c.queryDevice()
	if err != nil {
		return DeviceAttr{}, wrap(op, c.device, err)
	}
	c.attr.Store(&a)
	return a, nil
}

func (c *Context) queryDevice() (DeviceAttr, error) {
	var ex abi.IbUverbsExQueryDeviceResp
	err := c.k.invoke(uapi.QueryDeviceEx, uapi.Bytes(&abi.IbUverbsExQueryDevice{}), uapi.Bytes(&ex))
	if missing(err) {
		ex = abi.IbUverbsExQueryDeviceResp{}
		err = c.k.invoke(uapi.QueryDevice, uapi.Bytes(&abi.IbUverbsQueryDevice{}), uapi.Bytes(&ex.Base))
	}
	if err != nil {
		return DeviceAttr{}, err
	}
	b := &ex.Base
	return DeviceAttr{
		FirmwareVersion: b.FwVer, NodeGUID: b.NodeGuid.Get(), SystemGUID: b.SysImageGuid.Get(),
		MaxMRSize: b.MaxMrSize, PageSizeCap: b.PageSizeCap, VendorID: b.VendorId, PartID: b.VendorPartId, HWVer: b.HwVer,
		MaxQP: b.MaxQp, MaxQPWR: b.MaxQpWr, CapFlags: b.DeviceCapFlags, MaxSGE: b.MaxSge, MaxSGERead: b.MaxSgeRd,
		MaxCQ: b.MaxCq, MaxCQE: b.MaxCqe, MaxMR: b.MaxMr, MaxPD: b.MaxPd, MaxMW: b.MaxMw,
		MaxQPRDAtom: b.MaxQpRdAtom, MaxResRDAtom: b.MaxResRdAtom, MaxQPInitRDAtom: b.MaxQpInitRdAtom,
		AtomicCap: b.AtomicCap, MaxMcastGroup: b.MaxMcastGrp, MaxAH: b.MaxAh, MaxSRQ: b.MaxSrq, MaxSRQWR: b.MaxSrqWr,
		MaxSRQSGE: b.MaxSrqSge, MaxPKeys: b.MaxPkeys, AckDelay: b.LocalCaAckDelay, NumPorts: b.PhysPortCnt,
		MaxMcastQPAttach: b.MaxMcastQpAttach,

		CapFlagsEx: ex.DeviceCapFlagsEx, TimestampMask: ex.TimestampMask, CoreClock: ex.HcaCoreClock,
		ODPCaps: ex.OdpCaps.GeneralCaps, ODPCapsRC: ex.OdpCaps.PerTransportCaps.RcOdpCaps,
		ODPCapsUC: ex.OdpCaps.PerTransportCaps.UcOdpCaps, ODPCapsUD: ex.OdpCaps.PerTransportCaps.UdOdpCaps,
		RSSQPTypes: ex.RssCaps.SupportedQpts, MaxRSSTables: ex.RssCaps.MaxRwqIndirectionTables,
		MaxRSSTableSize: ex.RssCaps.MaxRwqIndirectionTableSize, MaxWQTypeRQ: ex.MaxWqTypeRq,
		RawPacketCaps: ex.RawPacketCaps, MaxTagMatching: ex.TmCaps.MaxNumTags,
		MaxModerationCount:  ex.CqModerationCaps.MaxCqModerationCount,
		MaxModerationPeriod: ex.CqModerationCaps.MaxCqModerationPeriod, MaxDeviceMemory: ex.MaxDmSize,
	}, nil
}

// PortState is the state of a port: enum ibv_port_state.
type PortState uint8

// The port states.
const (
	PortNop PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
	PortActiveDefer
)

func (s PortState) String() string {
	names := [...]string{"nop", "down", "init", "armed", "active", "active defer"}
	if int(s) < len(names) {
		return names[s]
	}
	return "state " + utoa(uint32(s))
}

// PortAttr describes a port: struct ibv_port_attr.
type PortAttr struct {
	State              PortState
	MaxMTU, ActiveMTU  MTU
	MaxMessage         uint32 // bytes
	GIDTableLen        int
	PKeyTableLen       int
	LID, SMLID         uint16
	CapFlags           uint32
	ActiveWidth        uint8  // code
	ActiveSpeed        uint32 // code
	PhysState          uint8
	Ethernet           bool // the link layer
	BadPKeys, BadQKeys uint32

	// InfiniBand only.
	LMC, MaxVL, SMSL uint8
	SubnetTimeout    uint8
	InitTypeReply    uint8
	GRHRequired      bool // every path needs a global routing header
	CapFlags2        uint16
}

// QueryPort describes a port; ports count from 1. Source: ibv_query_port(3).
func (c *Context) QueryPort(port uint8) (PortAttr, error) {
	const op = "query port"
	if err := c.begin(op); err != nil {
		return PortAttr{}, err
	}
	defer c.end()
	var r abi.IbUverbsQueryPortRespEx
	cmd := c.k.command(uapi.QueryPort).
		Const(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, uint64(port)).
		Out(abi.UVERBS_ATTR_QUERY_PORT_RESP, uapi.Bytes(&r))
	if err := cmd.Do(c.k.file); err != nil {
		return PortAttr{}, wrap(op, fmt.Sprintf("%s port %d", c.device, port), err)
	}
	l := &r.LegacyResp
	return PortAttr{
		State: PortState(l.State), MaxMTU: MTU(l.MaxMtu), ActiveMTU: MTU(l.ActiveMtu), MaxMessage: l.MaxMsgSz,
		GIDTableLen: int(l.GidTblLen), PKeyTableLen: int(l.PkeyTblLen), LID: l.Lid, SMLID: l.SmLid,
		CapFlags: l.PortCapFlags, ActiveWidth: l.ActiveWidth, ActiveSpeed: max(r.ActiveSpeedEx, uint32(l.ActiveSpeed)),
		PhysState: l.PhysState, Ethernet: l.LinkLayer == 2, BadPKeys: l.BadPkeyCntr, BadQKeys: l.QkeyViolCntr,
		LMC: l.Lmc, MaxVL: l.MaxVlNum, SMSL: l.SmSl, SubnetTimeout: l.SubnetTimeout, InitTypeReply: l.InitTypeReply,
		GRHRequired: l.Flags&abi.IB_UVERBS_QPF_GRH_REQUIRED != 0, CapFlags2: r.PortCapFlags2,
	}, nil
}

// Rate is the nominal speed of the port in Mb/s, from its width and speed; 0 if either code
// is unknown.
func (a *PortAttr) Rate() int {
	lanes := map[uint8]int{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}[a.ActiveWidth]
	lane := map[uint32]int{1: 2500, 2: 5000, 4: 10000, 8: 10000, 16: 14000, 32: 25000, 64: 50000, 128: 100000, 256: 200000}
	return lanes * lane[a.ActiveSpeed]
}

// QueryPortSpeed asks for the speed of a port in Mb/s. A kernel before 7.2, or a driver, that
// does not tell is helped out with the nominal speed, see [PortAttr.Rate]. Source:
// ibv_query_port_speed(3).
func (c *Context) QueryPortSpeed(port uint8) (int, error) {
	const op = "query port speed"
	if err := c.begin(op); err != nil {
		return 0, err
	}
	var hundreds uint64 // of Mb/s
	err := c.k.command(uapi.QueryPortSpeed).
		Const(abi.UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM, uint64(port)).
		Out(abi.UVERBS_ATTR_QUERY_PORT_SPEED_RESP, uapi.Bytes(&hundreds)).
		Do(c.k.file)
	c.end()
	if !missing(err) {
		return int(hundreds) * 100, wrap(op, fmt.Sprintf("%s port %d", c.device, port), err)
	}
	a, err := c.QueryPort(port)
	return a.Rate(), err
}

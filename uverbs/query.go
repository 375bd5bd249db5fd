package uverbs

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// DeviceAttr is what a device can do: struct ibv_device_attr. Limits are counts of objects
// unless the name says otherwise.
type DeviceAttr struct {
	FirmwareVersion          uint64 // the driver's encoding
	NodeGUID, SystemGUID     uint64 // host byte order
	MaxMRSize                uint64 // bytes
	PageSizeCap              uint64
	VendorID, PartID, HWVer  uint32
	MaxQP, MaxQPWR           uint32
	CapFlags                 uint32
	MaxSGE, MaxSGERead       uint32
	MaxCQ, MaxCQE            uint32
	MaxMR, MaxPD, MaxMW      uint32
	MaxQPRDAtom              uint32 // READs and atomics in flight to one queue pair
	MaxResRDAtom             uint32
	MaxQPInitRDAtom          uint32 // READs and atomics in flight from one queue pair
	AtomicCap                uint32
	MaxMcastGroup, MaxAH     uint32
	MaxSRQ, MaxSRQWR         uint32
	MaxSRQSGE                uint32
	MaxPKeys                 uint16
	AckDelay                 uint8 // 4.096 µs * 2^AckDelay
	NumPorts                 uint8
	CapFlagsEx               uint64 // 0 if the kernel does not tell
	TimestampMask, CoreClock uint64 // 0 if the kernel does not tell
}

// QueryDevice asks what the device can do. A kernel without the extended query answers the
// basic one, and what only the former tells is 0. Source: ibv_query_device_ex(3).
func (c *Context) QueryDevice() (DeviceAttr, error) {
	const op = "query device"
	if err := c.begin(op); err != nil {
		return DeviceAttr{}, err
	}
	defer c.end()
	var ex abi.IbUverbsExQueryDeviceResp
	err := c.k.invoke(uapi.QueryDeviceEx, uapi.Bytes(&abi.IbUverbsExQueryDevice{}), uapi.Bytes(&ex))
	if missing(err) {
		ex = abi.IbUverbsExQueryDeviceResp{}
		err = c.k.invoke(uapi.QueryDevice, uapi.Bytes(&abi.IbUverbsQueryDevice{}), uapi.Bytes(&ex.Base))
	}
	if err != nil {
		return DeviceAttr{}, wrap(op, c.device, err)
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
		CapFlagsEx: ex.DeviceCapFlagsEx, TimestampMask: ex.TimestampMask, CoreClock: ex.HcaCoreClock,
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
	}, nil
}

// GIDType is the protocol that a GID stands for: enum ib_uverbs_gid_type.
type GIDType uint32

// The GID types. RoCE v1 and v2 never talk to each other.
const (
	GIDTypeIB     GIDType = abi.IB_UVERBS_GID_TYPE_IB
	GIDTypeRoCEv1 GIDType = abi.IB_UVERBS_GID_TYPE_ROCE_V1
	GIDTypeRoCEv2 GIDType = abi.IB_UVERBS_GID_TYPE_ROCE_V2
)

func (t GIDType) String() string {
	switch t {
	case GIDTypeIB:
		return "IB"
	case GIDTypeRoCEv1:
		return "RoCE v1"
	case GIDTypeRoCEv2:
		return "RoCE v2"
	}
	return "type " + utoa(uint32(t))
}

// GIDEntry is one entry of a port's GID table.
type GIDEntry struct {
	GID     GID
	Index   int
	Port    int
	Type    GIDType
	IfIndex int // of the network interface, in that interface's namespace; 0 if there is none
}

// GIDTable lists the non-empty entries of the GID tables of all ports. The tables change
// with the addresses of the network interfaces.
func (c *Context) GIDTable() ([]GIDEntry, error) {
	const op = "query GID table"
	total := 0
	for port := 1; port <= c.dev.NumPorts(); port++ {
		a, err := c.QueryPort(uint8(port))
		if err != nil {
			return nil, err
		}
		total += a.GIDTableLen
	}
	if total == 0 {
		return nil, nil
	}
	if err := c.begin(op); err != nil {
		return nil, err
	}
	defer c.end()
	raw := make([]abi.IbUverbsGidEntry, total)
	var n uint64
	size := len(uapi.Bytes(&raw[0]))
	// An attribute's length has 16 bits: large tables are cut to what fits.
	raw = raw[:min(total, (uapi.NoLimit-1)/size)]
	cmd := c.k.command(uapi.QueryGIDTable).
		Const(abi.UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, uint64(size)).
		Out(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, uapi.SliceBytes(raw)).
		Out(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, uapi.Bytes(&n))
	if err := cmd.Do(c.k.file); err != nil {
		return nil, wrap(op, c.device, err)
	}
	if n > uint64(len(raw)) {
		return nil, wrap(op, c.device, errors.Join(ErrCorrupt, syscall.EOVERFLOW))
	}
	table := make([]GIDEntry, n)
	for i := range table {
		e := &raw[i]
		table[i] = GIDEntry{
			Index: int(e.GidIndex), Port: int(e.PortNum), Type: GIDType(e.GidType), IfIndex: int(e.NetdevIfindex),
		}
		copy(table[i].GID[:], uapi.Bytes(&e.Gid))
	}
	return table, nil
}

// FindGID chooses the entry of a port's GID table for a queue pair that is set up by hand:
// the one with the wanted address and, where the port speaks RoCE, of type v2, never its v1
// twin. Without a match the error shows the table.
func FindGID(table []GIDEntry, port int, addr netip.Addr) (GIDEntry, error) {
	want := GID(addr.WithZone("").As16())
	for _, e := range table {
		if e.Port == port && e.GID == want && e.Type != GIDTypeRoCEv1 {
			return e, nil
		}
	}
	shown := ""
	for _, e := range table {
		shown += fmt.Sprintf(" [port %d index %d %v %v]", e.Port, e.Index, e.GID, e.Type)
	}
	return GIDEntry{}, invalid("find GID", "", "no RoCE v2 or IB entry for %v on port %d; the table is:%s", addr, port, shown)
}

// QueryPKey returns entry index of a port's partition key table. Source: ibv_query_pkey(3).
func (c *Context) QueryPKey(port uint8, index int) (uint16, error) {
	key, err := c.dev.sys.PKey(&c.dev.info, int(port), index)
	return key, wrap("query P_Key", c.device, err)
}

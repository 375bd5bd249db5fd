package main

import (
	"fmt"
	"strings"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/uverbs"
)

// attributes are numbers and words by the names of libibverbs, as far as it has them.
type attributes map[string]any

// attribute is one that a *T has.
type attribute[T any] struct {
	name string
	of   func(*T) any
}

func valuesOf[T any](table []attribute[T], from *T) attributes {
	values := make(attributes, len(table))
	for _, a := range table {
		values[a.name] = a.of(from)
	}
	return values
}

// bits is a number whose bits mean something.
type bits uint64

func (b bits) String() string { return fmt.Sprintf("%#x", uint64(b)) }

type (
	ofDevice = attribute[uverbs.DeviceAttr]
	ofPort   = attribute[uverbs.PortAttr]
)

// deviceAttributes are in the order in which they are printed.
var deviceAttributes = []ofDevice{
	{"vendor_id", func(a *uverbs.DeviceAttr) any { return bits(a.VendorID) }},
	{"vendor_part_id", func(a *uverbs.DeviceAttr) any { return a.PartID }},
	{"hw_ver", func(a *uverbs.DeviceAttr) any { return bits(a.HWVer) }},
	{"fw_ver", func(a *uverbs.DeviceAttr) any { return bits(a.FirmwareVersion) }},
	{"phys_port_cnt", func(a *uverbs.DeviceAttr) any { return a.NumPorts }},
	{"max_mr_size", func(a *uverbs.DeviceAttr) any { return a.MaxMRSize }},
	{"page_size_cap", func(a *uverbs.DeviceAttr) any { return bits(a.PageSizeCap) }},
	{"max_qp", func(a *uverbs.DeviceAttr) any { return a.MaxQP }},
	{"max_qp_wr", func(a *uverbs.DeviceAttr) any { return a.MaxQPWR }},
	{"device_cap_flags", func(a *uverbs.DeviceAttr) any { return bits(a.CapFlags) }},
	{"device_cap_flags_ex", func(a *uverbs.DeviceAttr) any { return bits(a.CapFlagsEx) }},
	{"max_sge", func(a *uverbs.DeviceAttr) any { return a.MaxSGE }},
	{"max_sge_rd", func(a *uverbs.DeviceAttr) any { return a.MaxSGERead }},
	{"max_cq", func(a *uverbs.DeviceAttr) any { return a.MaxCQ }},
	{"max_cqe", func(a *uverbs.DeviceAttr) any { return a.MaxCQE }},
	{"max_mr", func(a *uverbs.DeviceAttr) any { return a.MaxMR }},
	{"max_pd", func(a *uverbs.DeviceAttr) any { return a.MaxPD }},
	{"max_qp_rd_atom", func(a *uverbs.DeviceAttr) any { return a.MaxQPRDAtom }},
	{"max_res_rd_atom", func(a *uverbs.DeviceAttr) any { return a.MaxResRDAtom }},
	{"max_qp_init_rd_atom", func(a *uverbs.DeviceAttr) any { return a.MaxQPInitRDAtom }},
	{"atomic_cap", func(a *uverbs.DeviceAttr) any { return atomicCap(a.AtomicCap) }},
	{"max_mw", func(a *uverbs.DeviceAttr) any { return a.MaxMW }},
	{"max_mcast_grp", func(a *uverbs.DeviceAttr) any { return a.MaxMcastGroup }},
	{"max_mcast_qp_attach", func(a *uverbs.DeviceAttr) any { return a.MaxMcastQPAttach }},
	{"max_ah", func(a *uverbs.DeviceAttr) any { return a.MaxAH }},
	{"max_srq", func(a *uverbs.DeviceAttr) any { return a.MaxSRQ }},
	{"max_srq_wr", func(a *uverbs.DeviceAttr) any { return a.MaxSRQWR }},
	{"max_srq_sge", func(a *uverbs.DeviceAttr) any { return a.MaxSRQSGE }},
	{"max_pkeys", func(a *uverbs.DeviceAttr) any { return a.MaxPKeys }},
	{"local_ca_ack_delay", func(a *uverbs.DeviceAttr) any { return a.AckDelay }},
	{"odp_caps", func(a *uverbs.DeviceAttr) any { return bits(a.ODPCaps) }},
	{"rc_odp_caps", func(a *uverbs.DeviceAttr) any { return bits(a.ODPCapsRC) }},
	{"uc_odp_caps", func(a *uverbs.DeviceAttr) any { return bits(a.ODPCapsUC) }},
	{"ud_odp_caps", func(a *uverbs.DeviceAttr) any { return bits(a.ODPCapsUD) }},
	{"completion_timestamp_mask", func(a *uverbs.DeviceAttr) any { return bits(a.TimestampMask) }},
	{"hca_core_clock_khz", func(a *uverbs.DeviceAttr) any { return a.CoreClock }},
	{"rss_supported_qpts", func(a *uverbs.DeviceAttr) any { return bits(a.RSSQPTypes) }},
	{"max_rwq_indirection_tables", func(a *uverbs.DeviceAttr) any { return a.MaxRSSTables }},
	{"max_rwq_indirection_table_size", func(a *uverbs.DeviceAttr) any { return a.MaxRSSTableSize }},
	{"max_wq_type_rq", func(a *uverbs.DeviceAttr) any { return a.MaxWQTypeRQ }},
	{"raw_packet_caps", func(a *uverbs.DeviceAttr) any { return bits(a.RawPacketCaps) }},
	{"max_tm_num_tags", func(a *uverbs.DeviceAttr) any { return a.MaxTagMatching }},
	{"max_cq_moderation_count", func(a *uverbs.DeviceAttr) any { return a.MaxModerationCount }},
	{"max_cq_moderation_period", func(a *uverbs.DeviceAttr) any { return a.MaxModerationPeriod }},
	{"max_dm_size", func(a *uverbs.DeviceAttr) any { return a.MaxDeviceMemory }},
}

// portAttributes are those that portInfo has no field for.
var portAttributes = []ofPort{
	{"max_msg_sz", func(a *uverbs.PortAttr) any { return a.MaxMessage }},
	{"gid_tbl_len", func(a *uverbs.PortAttr) any { return a.GIDTableLen }},
	{"pkey_tbl_len", func(a *uverbs.PortAttr) any { return a.PKeyTableLen }},
	{"port_lid", func(a *uverbs.PortAttr) any { return a.LID }},
	{"port_lmc", func(a *uverbs.PortAttr) any { return a.LMC }},
	{"sm_lid", func(a *uverbs.PortAttr) any { return a.SMLID }},
	{"sm_sl", func(a *uverbs.PortAttr) any { return a.SMSL }},
	{"port_cap_flags", func(a *uverbs.PortAttr) any { return bits(a.CapFlags) }},
	{"port_cap_flags2", func(a *uverbs.PortAttr) any { return bits(a.CapFlags2) }},
	{"max_vl_num", func(a *uverbs.PortAttr) any { return a.MaxVL }},
	{"bad_pkey_cntr", func(a *uverbs.PortAttr) any { return a.BadPKeys }},
	{"qkey_viol_cntr", func(a *uverbs.PortAttr) any { return a.BadQKeys }},
	{"subnet_timeout", func(a *uverbs.PortAttr) any { return a.SubnetTimeout }},
	{"init_type_reply", func(a *uverbs.PortAttr) any { return a.InitTypeReply }},
	{"active_width", func(a *uverbs.PortAttr) any { return a.ActiveWidth }},
	{"active_speed", func(a *uverbs.PortAttr) any { return a.ActiveSpeed }},
	{"grh_required", func(a *uverbs.PortAttr) any { return a.GRHRequired }},
}

// capabilities names what the device can do, by the bits of the larger of the two sets.
func capabilities(a *uverbs.DeviceAttr) []string {
	names := []string{}
	flags := a.CapFlagsEx | uint64(a.CapFlags)
	for bit := range 64 {
		if flags>>bit&1 == 0 {
			continue
		}
		name, known := strings.CutPrefix(abi.IbUverbsDeviceCapFlags(1<<bit).String(), "IB_UVERBS_DEVICE_")
		if !known {
			name = fmt.Sprintf("bit %d", bit)
		}
		names = append(names, name)
	}
	return names
}

// atomicCap is enum ib_atomic_cap: among whom operations are atomic.
func atomicCap(c uint32) string {
	return oneOf(c, "none", "HCA", "global")
}

// physState is the state of the link below: IBTA volume 1, PortInfo, PortPhysicalState.
func physState(s uint8) string {
	return oneOf(uint32(s), "-", "sleep", "polling", "disabled", "port configuration training", "link up",
		"link error recovery", "phy test")
}

func oneOf(code uint32, names ...string) string {
	if int(code) < len(names) {
		return names[code]
	}
	return fmt.Sprint(code)
}

// portWidth is enum ib_port_width, "" for none of it.
func portWidth(code uint8) string {
	return map[uint8]string{1: "1X", 2: "4X", 4: "8X", 8: "12X", 16: "2X"}[code]
}

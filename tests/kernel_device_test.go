//go:build linux

package tests

import (
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// deviceCases ask what there is.
var deviceCases = []kernelCase{
	{"query device", nil, func(r *rig) (fields, error) {
		var d abi.IbUverbsQueryDeviceResp
		err := r.invoke(uapi.QueryDevice, uapi.Bytes(&abi.IbUverbsQueryDevice{}), uapi.Bytes(&d), nil, nil)
		return limits(&d), err
	}},
	{"query device, extended", nil, func(r *rig) (fields, error) {
		var d abi.IbUverbsExQueryDeviceResp
		err := r.invoke(uapi.QueryDeviceEx, uapi.Bytes(&abi.IbUverbsExQueryDevice{}), uapi.Bytes(&d), nil, nil)
		f := limits(&d.Base)
		f["flags"], f["odp"], f["mask"] = d.DeviceCapFlagsEx, d.OdpCaps.GeneralCaps, d.CompMask
		f["length"] = d.ResponseLength
		return f, err
	}},
	{"query device, extended, short answer", nil, func(r *rig) (fields, error) {
		return nil, r.invoke(&uapi.WriteCmd{ID: uapi.QueryDeviceEx.ID, In: 8}, uapi.Bytes(&abi.IbUverbsExQueryDevice{}), make([]byte, 64), nil, nil)
	}},
	{"query port", nil, func(r *rig) (fields, error) {
		p, err := r.port(1)
		l := &p.LegacyResp
		return fields{
			"state": l.State, "max mtu": l.MaxMtu, "active mtu": l.ActiveMtu, "gids": l.GidTblLen, "pkeys": l.PkeyTblLen,
			"link layer": l.LinkLayer, "phys": l.PhysState, "lid": l.Lid, "max message": l.MaxMsgSz,
			"caps": l.PortCapFlags,
		}, err
	}},
	{"query port 0", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, err := r.port(0)
		return nil, err
	}},
	{"query port 2", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, err := r.port(2)
		return nil, err
	}},
	{"query port speed", rules{{errno: syscall.EPROTONOSUPPORT}, {from: "7.2", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		var speed uint64
		return nil, r.cmd(uapi.QueryPortSpeed).
			Const(abi.UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM, 1).
			Out(abi.UVERBS_ATTR_QUERY_PORT_SPEED_RESP, uapi.Bytes(&speed)).Do(r.f)
	}},
	{"GID table", nil, func(r *rig) (fields, error) {
		table, n, err := r.gids(64, 32)
		kinds := map[uint32]bool{}
		for _, e := range table[:n] {
			kinds[e.GidType] = true
		}
		return fields{"some": n > 0, "types": kinds, "port": table[0].PortNum, "index": table[0].GidIndex}, err
	}},
	{"GID table, no room", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, _, err := r.gids(0, 32)
		return nil, err
	}},
	{"GID table, small entries", nil, func(r *rig) (fields, error) {
		_, _, err := r.gids(64, 16)
		return nil, err
	}},
	{"GID entry 0", nil, func(r *rig) (fields, error) {
		e, err := r.gid(1, 0)
		return fields{"type": e.GidType, "index": e.GidIndex, "port": e.PortNum}, err
	}},
	{"GID entry that is empty", rules{{errno: syscall.ENODATA}, {driver: "siw", errno: syscall.EINVAL}}, func(r *rig) (fields, error) {
		_, err := r.gid(1, 100)
		return nil, err
	}},
	{"GID entry beyond the table", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, err := r.gid(1, 1<<20)
		return nil, err
	}},
	{"GID entry of port 7", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, err := r.gid(7, 0)
		return nil, err
	}},
}

// limits are what a device says of itself that programs go by.
func limits(d *abi.IbUverbsQueryDeviceResp) fields {
	return fields{
		"qp": d.MaxQp, "qp wr": d.MaxQpWr, "caps": d.DeviceCapFlags, "sge": d.MaxSge, "read sge": d.MaxSgeRd,
		"cq": d.MaxCq, "cqe": d.MaxCqe, "mr": d.MaxMr, "pd": d.MaxPd, "rd atom": d.MaxQpRdAtom, "init rd atom": d.MaxQpInitRdAtom,
		"res rd atom": d.MaxResRdAtom, "atomic": d.AtomicCap, "mw": d.MaxMw, "mcast": d.MaxMcastGrp,
		"mcast attach": d.MaxMcastQpAttach, "ah": d.MaxAh, "srq": d.MaxSrq, "srq wr": d.MaxSrqWr, "srq sge": d.MaxSrqSge,
		"pkeys": d.MaxPkeys, "ack delay": d.LocalCaAckDelay, "ports": d.PhysPortCnt, "pages": d.PageSizeCap,
	}
}

func (r *rig) port(n uint64) (p abi.IbUverbsQueryPortRespEx, err error) {
	err = r.cmd(uapi.QueryPort).
		Const(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, n).
		Out(abi.UVERBS_ATTR_QUERY_PORT_RESP, uapi.Bytes(&p)).Do(r.f)
	return p, err
}

// gids reads the table into as many entries of the given size.
func (r *rig) gids(room int, size uint64) (table []abi.IbUverbsGidEntry, n uint64, err error) {
	table = make([]abi.IbUverbsGidEntry, max(room, 1))
	err = r.cmd(uapi.QueryGIDTable).
		Const(abi.UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, size).
		Out(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, uapi.SliceBytes(table[:room])).
		Out(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, uapi.Bytes(&n)).Do(r.f)
	return table, n, err
}

func (r *rig) gid(port, index uint64) (e abi.IbUverbsGidEntry, err error) {
	err = r.cmd(uapi.QueryGIDEntry).
		Const(abi.UVERBS_ATTR_QUERY_GID_ENTRY_PORT, port).
		Const(abi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, index).
		Flags(abi.UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0).
		Out(abi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, uapi.Bytes(&e)).Do(r.f)
	return e, err
}

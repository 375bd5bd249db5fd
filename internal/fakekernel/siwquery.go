//go:build linux

package fakekernel

import "github.com/pureverbs/rdma/abi"

// siwCaps is IB_DEVICE_MEM_MGT_EXTENSIONS.
const siwCaps = 1 << 21

// attributes: sw/siw/siw_verbs.c, siw_query_device.
func (siwDriver) attributes(d *device) abi.IbUverbsQueryDeviceResp {
	const objects = 100 << 10 // of most kinds
	return abi.IbUverbsQueryDeviceResp{
		NodeGuid: d.guid(), SysImageGuid: d.guid(), MaxMrSize: 1<<64 - 1, PageSizeCap: pageSize,
		VendorId: 0x62_6d74, MaxQp: objects, MaxQpWr: siwMaxWR, DeviceCapFlags: siwCaps,
		MaxSge: siwMaxSGE, MaxSgeRd: 1, MaxCq: objects, MaxCqe: siwMaxCQE, MaxMr: 10 * objects, MaxPd: objects,
		MaxQpRdAtom: siwMaxReads, MaxQpInitRdAtom: siwMaxReads, MaxResRdAtom: objects * siwMaxReads,
		MaxSrq: objects, MaxSrqWr: siwMaxSRQWR, MaxSrqSge: siwMaxSGE, PhysPortCnt: 1,
	}
}

// port: there is no table of partitions, not even a dummy.
func (siwDriver) port(d *device) abi.IbUverbsQueryPortRespEx {
	maxMTU := d.MTU
	if d.version >= v611 {
		maxMTU = 1 // from the interface's largest, which is 0 for a dummy interface
	}
	return abi.IbUverbsQueryPortRespEx{
		LegacyResp: abi.IbUverbsQueryPortResp{
			PortCapFlags: 0x0009_0000, MaxMsgSz: 1<<32 - 1, GidTblLen: 1,
			State: d.portState(), MaxMtu: maxMTU, ActiveMtu: d.MTU,
			ActiveWidth: 1, ActiveSpeed: 1, PhysState: 5, LinkLayer: 2,
		},
		ActiveSpeedEx: 1,
	}
}

// iwarp tells whether the device speaks iWARP.
func (d *device) iwarp() bool { return d != nil && d.drv.link().protocol == "iw" }

// mac is the address of the interface, from which the kernel makes the GUID.
func (d *device) mac() []byte {
	g := bytesOf(ptr(d.guid()))
	return []byte{g[0] ^ 2, g[1], g[2], g[5], g[6], g[7]}
}

func ptr[T any](v T) *T { return &v }

// addMAC makes the only entry of the GID table: the address of the interface, as if it were
// a GID. Until Linux 6.6 it names no interface.
func (d *device) addMAC() {
	e := abi.IbUverbsGidEntry{PortNum: 1, GidType: abi.IB_UVERBS_GID_TYPE_IB}
	copy(bytesOf(&e.Gid), d.mac())
	d.gids = append(d.gids, e)
}

// describe says of a queue pair what siw knows: sw/siw/siw_verbs.c, siw_query_qp. Linux 6.1
// does not fill the state in, and what the user sees is what the memory held before.
func (s *siwQP) describe(r *abi.IbUverbsQueryQpResp) {
	const statesTold version = 6<<8 | 12
	*r = abi.IbUverbsQueryQpResp{
		MaxSendWr: s.n, MaxRecvWr: s.own.slots(), MaxSendSge: s.q.cap.MaxSendSge, MaxRecvSge: s.q.cap.MaxRecvSge,
		MaxInlineData: abi.SIW_MAX_INLINE, PathMtu: s.q.f.dev.MTU, MaxRdAtomic: s.ird, MaxDestRdAtomic: s.ord,
		SqSigAll:      1, // siw leaves it at 0, which stands for "all"
		QpAccessFlags: abi.IB_UVERBS_ACCESS_LOCAL_WRITE | abi.IB_UVERBS_ACCESS_REMOTE_WRITE | abi.IB_UVERBS_ACCESS_REMOTE_READ,
	}
	if s.q.f.k.version >= statesTold {
		r.QpState = s.q.state
	}
}

//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// mlx5Caps: the ports can be changed and tell when they come up; the GUID of the system is
// known; there are RNR answers, windows, and memory management extensions.
const mlx5Caps = abi.IB_UVERBS_DEVICE_CHANGE_PHY_PORT | abi.IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT |
	abi.IB_UVERBS_DEVICE_SYS_IMAGE_GUID | abi.IB_UVERBS_DEVICE_RC_RNR_NAK_GEN |
	abi.IB_UVERBS_DEVICE_MEM_WINDOW | abi.IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B | abi.IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS

// attributes: mlx5_ib_query_device.
func (mlx5Driver) attributes(d *device) abi.IbUverbsQueryDeviceResp {
	const many = 1 << 24
	r := abi.IbUverbsQueryDeviceResp{
		FwVer: 16<<32 | 35<<16 | 4030, NodeGuid: d.guid(), SysImageGuid: d.guid(), MaxMrSize: 1<<64 - 1,
		PageSizeCap: 0xffff_ffff_ffff_f000, VendorId: 0x2c9, VendorPartId: 4119, MaxQp: mlx5MaxQP, MaxQpWr: mlx5MaxWR,
		DeviceCapFlags: mlx5Caps, MaxSge: mlx5MaxSGE, MaxSgeRd: mlx5MaxSGE, MaxCq: many, MaxCqe: mlx5MaxCQE - 1,
		MaxMr: many, MaxPd: many, MaxQpRdAtom: mlx5MaxRDAtom, MaxQpInitRdAtom: mlx5MaxRDAtom,
		MaxResRdAtom: mlx5MaxQP * mlx5MaxRDAtom, AtomicCap: 1, MaxMw: many, MaxMcastGrp: 1 << 21, MaxMcastQpAttach: 240,
		MaxTotalMcastQpAttach: 240 << 21, MaxAh: 1<<31 - 1, MaxSrq: 1 << 23, MaxSrqWr: mlx5MaxSRQWR - 1,
		MaxSrqSge: mlx5MaxRecvSGE - 1, MaxPkeys: 128, LocalCaAckDelay: 16, PhysPortCnt: 1,
	}
	if d.version >= v612 {
		r.MaxQpWr = mlx5MaxWR * block / 256 // with the largest overhead of a request
	}
	return r
}

// features: the driver's own answer is as long as the parts that fit in the room for it. It
// is all zeros: nothing of what it tells of is here.
func (mlx5Driver) features(d *device, _ *abi.IbUverbsExQueryDeviceResp, u *udata) error {
	switch {
	case zeroTail(u.in, 0) != nil && d.robust():
		return unix.EOPNOTSUPP
	case zeroTail(u.in, 0) != nil, u.room > 0 && u.room < 8:
		return unix.EINVAL
	case u.room == 0:
		return nil
	}
	r := abi.Mlx5IbQueryDeviceResp{ResponseLength: fitting(d.version, u.room)}
	u.out = bytesOf(&r)[:r.ResponseLength]
	if d.robust() {
		u.respond(d, u.out)
	}
	return nil
}

// fitting is how many bytes of the answer are there: it grows by whole parts.
func fitting(v version, room int) (n uint32) {
	ends := []uint32{8, 16, 32, 40, 56, 60, 64, 72, 96, 100, 104, 112}
	if v < v612 {
		ends = ends[:len(ends)-1]
	}
	for _, end := range ends {
		if int(end) <= room {
			n = end
		}
	}
	return n
}

// mlx5Speed is that of the link, in units of 100 Mb/s.
const mlx5Speed = 1000

// port: mlx5_query_port_roce. The link is one of 100 Gb/s.
func (mlx5Driver) port(d *device) abi.IbUverbsQueryPortRespEx {
	const addressGIDs = 1 << 26
	return abi.IbUverbsQueryPortRespEx{
		LegacyResp: abi.IbUverbsQueryPortResp{
			PortCapFlags: 0x0001_0000 | addressGIDs, MaxMsgSz: mlx5MaxMessage, GidTblLen: mlx5GIDTable, PkeyTblLen: 1,
			State: d.portState(), MaxMtu: maxMTU, ActiveMtu: d.MTU, MaxVlNum: 1,
			ActiveWidth: 2, ActiveSpeed: 32, PhysState: 5, LinkLayer: 2,
		},
		ActiveSpeedEx: 32,
	}
}

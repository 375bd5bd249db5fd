//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// What rxe tells about itself, in all versions (drivers/infiniband/sw/rxe/rxe_param.h).
const (
	portDown   = 1
	portActive = 4
	gidTable   = 1024
	maxSGE     = 32
	maxInline  = 512
	maxCQE     = 32767
	maxRDAtom  = 128
	maxMTU     = 5

	baseCaps   = 0x0020_3c76
	windowCaps = 1<<17 | 1<<24 // MEM_WINDOW, MEM_WINDOW_TYPE_2B
)

// limits are what differs from version to version.
type limits struct {
	caps                                              uint64
	qp, qpWR, cq, mr, mw, pd, ah, srq, srqWR, message uint32
	pkeys                                             uint16
}

func (d *device) limits() limits {
	const many = 1 << 20
	l := limits{
		caps: baseCaps | windowCaps, qp: many - 16, qpWR: many, cq: many, mr: maxMRIndex - 1, mw: maxMWIndex - minMWIndex,
		pd: many, ah: 1<<15 - 1, srq: many - firstSRQN, srqWR: many, message: 1 << 23, pkeys: 64,
	}
	switch {
	case d.version < v514:
		l = limits{
			caps: baseCaps, qp: 1 << 16, qpWR: 1 << 14, cq: 1 << 14, mr: 256 << 10, pd: 0x7ffc, ah: 100, srq: 960,
			srqWR: 1 << 14, message: 1 << 23, pkeys: 1,
		}
	case d.version >= v603:
		l.caps |= abi.IB_UVERBS_DEVICE_FLUSH_GLOBAL | abi.IB_UVERBS_DEVICE_FLUSH_PERSISTENT | abi.IB_UVERBS_DEVICE_ATOMIC_WRITE
		l.message = 1 << 31
	}
	return l
}

func (rxeDriver) attributes(d *device) abi.IbUverbsQueryDeviceResp {
	l := d.limits()
	return abi.IbUverbsQueryDeviceResp{
		NodeGuid: d.guid(), SysImageGuid: d.guid(), MaxMrSize: 1<<64 - 1, PageSizeCap: 0xffff_f000,
		VendorId: 0xff_ffff, MaxQp: l.qp, MaxQpWr: l.qpWR, DeviceCapFlags: uint32(l.caps),
		MaxSge: maxSGE, MaxSgeRd: maxSGE, MaxCq: l.cq, MaxCqe: maxCQE, MaxMr: l.mr, MaxPd: l.pd,
		MaxQpRdAtom: maxRDAtom, MaxResRdAtom: 0x3_f000, MaxQpInitRdAtom: maxRDAtom, AtomicCap: 1,
		MaxMw: l.mw, MaxMcastGrp: maxGroups, MaxMcastQpAttach: maxGroupMembers, MaxTotalMcastQpAttach: maxAllMembers,
		MaxAh: l.ah, MaxSrq: l.srq, MaxSrqWr: l.srqWR, MaxSrqSge: maxSRQSGE, MaxPkeys: l.pkeys,
		LocalCaAckDelay: 15, PhysPortCnt: 1,
	}
}

// features are the capabilities, and what there is of on-demand paging, which began in 6.15.
func (rxeDriver) features(d *device, a *abi.IbUverbsExQueryDeviceResp, _ *udata) error {
	a.DeviceCapFlagsEx = d.limits().caps
	if d.version >= v615 {
		const datagram = abi.IB_UVERBS_ODP_SUPPORT_SEND | abi.IB_UVERBS_ODP_SUPPORT_RECV | abi.IB_UVERBS_ODP_SUPPORT_SRQ_RECV
		const oneSided = abi.IB_UVERBS_ODP_SUPPORT_WRITE | abi.IB_UVERBS_ODP_SUPPORT_READ | abi.IB_UVERBS_ODP_SUPPORT_ATOMIC |
			abi.IB_UVERBS_ODP_SUPPORT_FLUSH | abi.IB_UVERBS_ODP_SUPPORT_ATOMIC_WRITE
		a.OdpCaps.GeneralCaps = abi.IB_UVERBS_ODP_SUPPORT
		a.OdpCaps.PerTransportCaps.UdOdpCaps = datagram
		a.OdpCaps.PerTransportCaps.RcOdpCaps = datagram | oneSided
	}
	return nil
}

func (f *verbsFile) queryDevice(_, resp []byte) (int, error) {
	a := f.dev.drv.attributes(f.dev)
	return copy(resp, bytesOf(&a)), nil
}

// queryDeviceEx answers what a caller with an older, shorter struct has room for.
func (f *verbsFile) queryDeviceEx(in, resp []byte, u *udata) (int, error) {
	if c := load[abi.IbUverbsExQueryDevice](in); c.CompMask != 0 || c.Reserved != 0 {
		return 0, unix.EINVAL
	}
	a := abi.IbUverbsExQueryDeviceResp{Base: f.dev.drv.attributes(f.dev)}
	a.DeviceCapFlagsEx = uint64(a.Base.DeviceCapFlags)
	if err := f.dev.drv.features(f.dev, &a, u); err != nil {
		return 0, err
	}
	if f.k.version < v601 {
		a.DeviceCapFlagsEx |= 1 << 37 // a flag of the kernel's own, which it showed by mistake
	}
	a.ResponseLength = uint32(min(len(bytesOf(&a)), len(resp)))
	return copy(resp, bytesOf(&a)), nil
}

func (f *verbsFile) queryPort(r *request) error {
	if r.number(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM) != 1 {
		return unix.EINVAL
	}
	p := f.dev.drv.port(f.dev)
	return r.get(abi.UVERBS_ATTR_QUERY_PORT_RESP).out(bytesOf(&p))
}

// queryPortSpeed: only mlx5 tells, in units of 100 Mb/s.
func (f *verbsFile) queryPortSpeed(r *request) error {
	switch {
	case f.dev.Driver != abi.RDMA_DRIVER_MLX5:
		return unix.EOPNOTSUPP
	case r.number(abi.UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM) != 1:
		return unix.EINVAL
	}
	return r.get(abi.UVERBS_ATTR_QUERY_PORT_SPEED_RESP).out(bytesOf(ptr(uint64(mlx5Speed))))
}

func (rxeDriver) port(d *device) abi.IbUverbsQueryPortRespEx {
	return abi.IbUverbsQueryPortRespEx{
		LegacyResp: abi.IbUverbsQueryPortResp{
			PortCapFlags: 0x0001_0000, MaxMsgSz: d.limits().message, GidTblLen: gidTable, PkeyTblLen: 1,
			State: d.portState(), MaxMtu: 5, ActiveMtu: d.MTU, MaxVlNum: 1,
			ActiveWidth: 1, ActiveSpeed: 1, PhysState: 5, LinkLayer: 2,
		},
		ActiveSpeedEx: 1,
	}
}

func (f *verbsFile) queryGIDTable(r *request) error {
	var one abi.IbUverbsGidEntry
	size := r.number(abi.UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE)
	if r.number(abi.UVERBS_ATTR_QUERY_GID_TABLE_FLAGS) != 0 || size == 0 {
		return unix.EINVAL
	}
	entries := r.get(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES)
	if uint64(len(f.dev.gids)) > uint64(entries.raw.Len)/size {
		return unix.EINVAL
	}
	buf := make([]byte, uint64(len(f.dev.gids))*size)
	for i := range f.dev.gids {
		copy(buf[uint64(i)*size:][:min(size, uint64(len(bytesOf(&one))))], bytesOf(&f.dev.gids[i]))
	}
	if err := entries.out(buf); err != nil {
		return err
	}
	n := uint64(len(f.dev.gids))
	return r.get(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES).out(bytesOf(&n))
}

func (f *verbsFile) queryGIDEntry(r *request) error {
	port := r.number(abi.UVERBS_ATTR_QUERY_GID_ENTRY_PORT)
	index := r.number(abi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX)
	if r.number(abi.UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS) != 0 || port != 1 || index >= uint64(f.dev.drv.port(f.dev).LegacyResp.GidTblLen) {
		return unix.EINVAL
	}
	if index >= uint64(len(f.dev.gids)) {
		return unix.ENODATA
	}
	return r.get(abi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY).out(bytesOf(&f.dev.gids[index]))
}

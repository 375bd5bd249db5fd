//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// What rxe tells about itself (drivers/infiniband/sw/rxe/rxe_param.h).
const (
	deviceCaps = 0x0022_3c76
	portActive = 4
	gidTable   = 1024
	maxQPWR    = 16384
	maxSGE     = 32
	maxInline  = 512
	maxCQE     = 32767
	maxRDAtom  = 128
	maxMessage = 1 << 23
)

func (d *device) attributes() abi.IbUverbsQueryDeviceResp {
	return abi.IbUverbsQueryDeviceResp{
		NodeGuid: d.guid(), SysImageGuid: d.guid(), MaxMrSize: 1<<64 - 1, PageSizeCap: 0xffff_f000,
		VendorId: 0xff_ffff, MaxQp: 0xff_ffef, MaxQpWr: maxQPWR, DeviceCapFlags: deviceCaps,
		MaxSge: maxSGE, MaxSgeRd: maxSGE, MaxCq: 0x3f_ffff, MaxCqe: maxCQE, MaxMr: 0x7_fffe, MaxPd: 0x7_ffff,
		MaxQpRdAtom: maxRDAtom, MaxResRdAtom: 0x3f_000, MaxQpInitRdAtom: maxRDAtom, AtomicCap: 1,
		MaxMw: 0x7_fffe, MaxMcastGrp: 8192, MaxMcastQpAttach: 56, MaxTotalMcastQpAttach: 8192 * 56,
		MaxAh: 32767, MaxSrq: 0x7_fffe, MaxSrqWr: 0xf_ffff, MaxSrqSge: 27, MaxPkeys: 64,
		LocalCaAckDelay: 15, PhysPortCnt: 1,
	}
}

func (f *verbsFile) queryDevice(_, resp []byte) (int, error) {
	a := f.dev.attributes()
	return copy(resp, bytesOf(&a)), nil
}

// queryDeviceEx answers what a caller with an older, shorter struct has room for.
func (f *verbsFile) queryDeviceEx(in, resp []byte) (int, error) {
	if c := load[abi.IbUverbsExQueryDevice](in); c.CompMask != 0 || c.Reserved != 0 {
		return 0, unix.EINVAL
	}
	a := abi.IbUverbsExQueryDeviceResp{Base: f.dev.attributes(), DeviceCapFlagsEx: deviceCaps}
	a.ResponseLength = uint32(min(len(bytesOf(&a)), len(resp)))
	return copy(resp, bytesOf(&a)), nil
}

func (f *verbsFile) queryPort(r *request) error {
	if r.number(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM) != 1 {
		return unix.EINVAL
	}
	p := abi.IbUverbsQueryPortRespEx{
		LegacyResp: abi.IbUverbsQueryPortResp{
			PortCapFlags: 0x0001_0000, MaxMsgSz: maxMessage, GidTblLen: gidTable, PkeyTblLen: 1,
			State: portActive, MaxMtu: 5, ActiveMtu: f.dev.MTU, MaxVlNum: 1,
			ActiveWidth: 1, ActiveSpeed: 1, PhysState: 5, LinkLayer: 2,
		},
		ActiveSpeedEx: 1,
	}
	return r.get(abi.UVERBS_ATTR_QUERY_PORT_RESP).out(bytesOf(&p))
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
	if r.number(abi.UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS) != 0 || port != 1 || index >= gidTable {
		return unix.EINVAL
	}
	if index >= uint64(len(f.dev.gids)) {
		return unix.ENODATA
	}
	return r.get(abi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY).out(bytesOf(&f.dev.gids[index]))
}

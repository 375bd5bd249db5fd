package rdmacm

import (
	"encoding/binary"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/uverbs"
)

// PathRecord is a path between two ports, as the subnet administration of InfiniBand describes
// it (IBTA volume 1, 15.2.5.16). On RoCE the kernel makes one that fits, with LIDs of 0.
type PathRecord struct {
	Flags                  PathFlags
	ServiceID              uint64
	DGID, SGID             uverbs.GID
	DLID, SLID             uint16
	RawTraffic             bool
	FlowLabel              uint32 // 20 bits
	HopLimit               uint8
	TrafficClass           uint8
	Reversible             bool
	NumPaths               uint8 // 7 bits
	PKey                   uint16
	QoSClass               uint16 // 12 bits
	SL                     uint8  // 4 bits
	MTUSelector            uint8  // 2 bits: greater than, less than, exactly, largest
	MTU                    uverbs.MTU
	RateSelector           uint8
	Rate                   uint8 // enum ib_rate
	PacketLifeTimeSelector uint8
	PacketLifeTime         uint8 // 4.096 µs * 2^PacketLifeTime
	Preference             uint8
}

// PathFlags says what a path is for.
type PathFlags uint32

// The uses of a path: enum ib_path_flags of rdma/ib_user_sa.h. SetIBPath takes the first path
// that has PathGMP, PathPrimary and PathBidirectional, and no other.
const (
	PathGMP           PathFlags = 1 << 0
	PathPrimary       PathFlags = 1 << 1
	PathAlternate     PathFlags = 1 << 2
	PathOutbound      PathFlags = 1 << 3
	PathInbound       PathFlags = 1 << 4
	PathInboundRev    PathFlags = 1 << 5
	PathBidirectional           = PathOutbound | PathInboundRev
)

// maxPaths is more than the primary and the alternate one that the kernel keeps. It has to be:
// older kernels (5.10) leave the last record out if there is room for it and no more.
const maxPaths = 6

// pathQuery is the answer to QUERY with room for the records.
type pathQuery struct {
	head abi.RdmaUcmQueryPathResp
	recs [maxPaths]abi.IbPathRecData
}

// Path returns the paths of the resolved route: one, with an alternate path two, none on
// iWARP and before EventRouteResolved. Source: rdma_create_id(3), struct rdma_route.
func (id *ID) Path() ([]PathRecord, error) {
	var paths []PathRecord
	err := id.do(opPath, noAddr, func() error {
		in := abi.RdmaUcmQuery{Id: id.kid, Option: abi.RDMA_USER_CM_QUERY_PATH}
		var out pathQuery
		if err := id.ch.ask(abi.RDMA_USER_CM_CMD_QUERY, uapi.Bytes(&in), 0, uapi.Bytes(&out)); err != nil {
			return err
		}
		for i := range out.recs[:min(out.head.NumPaths, maxPaths)] {
			paths = append(paths, getPath(&out.recs[i]))
		}
		return nil
	})
	return paths, err
}

// SetIBPath gives the id its route, in place of ResolveRoute: one that came from elsewhere, as
// from ibacm or the subnet administration. The kernel takes one of paths, see [PathFlags]; it is
// followed by EventRouteResolved. The address has to be resolved.
//
// Errors: ErrInvalid if none of paths is for it; EINVAL in another state. iWARP takes a path
// and has no use for it. Source: rdma_set_option(3).
func (id *ID) SetIBPath(paths []PathRecord) error {
	const whole = PathGMP | PathPrimary | PathBidirectional
	recs := make([]abi.IbPathRecData, len(paths))
	good := false
	for i := range paths {
		putPath(&recs[i], &paths[i])
		good = good || paths[i].Flags == whole
	}
	if !good {
		return wrap(opOption, noAddr, invalidError("no path has the flags PathGMP, PathPrimary and PathBidirectional, and no other"))
	}
	return id.setOption(abi.RDMA_OPTION_IB, abi.RDMA_OPTION_IB_PATH, uapi.SliceBytes(recs))
}

// The record travels as on the wire, in network order: its words are put together here.
func putPath(to *abi.IbPathRecData, p *PathRecord) {
	*to = abi.IbPathRecData{Flags: uint32(p.Flags)}
	b := uapi.Bytes(&to.PathRec)
	be := binary.BigEndian
	be.PutUint64(b, p.ServiceID)
	copy(b[8:], p.DGID[:])
	copy(b[24:], p.SGID[:])
	be.PutUint16(b[40:], p.DLID)
	be.PutUint16(b[42:], p.SLID)
	be.PutUint32(b[44:], flag(p.RawTraffic)<<31|p.FlowLabel&0xfffff<<8|uint32(p.HopLimit))
	b[48] = p.TrafficClass
	b[49] = uint8(flag(p.Reversible))<<7 | p.NumPaths&0x7f
	be.PutUint16(b[50:], p.PKey)
	be.PutUint16(b[52:], p.QoSClass<<4|uint16(p.SL&0xf))
	b[54] = p.MTUSelector<<6 | uint8(p.MTU)&0x3f
	b[55] = p.RateSelector<<6 | p.Rate&0x3f
	b[56] = p.PacketLifeTimeSelector<<6 | p.PacketLifeTime&0x3f
	b[57] = p.Preference
}

func getPath(from *abi.IbPathRecData) PathRecord {
	b := uapi.Bytes(&from.PathRec)
	be := binary.BigEndian
	return PathRecord{
		Flags: PathFlags(from.Flags), ServiceID: be.Uint64(b), DGID: uverbs.GID(b[8:24]), SGID: uverbs.GID(b[24:40]),
		DLID: be.Uint16(b[40:]), SLID: be.Uint16(b[42:]),
		RawTraffic: b[44]>>7 != 0, FlowLabel: be.Uint32(b[44:]) >> 8 & 0xfffff, HopLimit: b[47],
		TrafficClass: b[48], Reversible: b[49]>>7 != 0, NumPaths: b[49] & 0x7f, PKey: be.Uint16(b[50:]),
		QoSClass: be.Uint16(b[52:]) >> 4, SL: b[53] & 0xf,
		MTUSelector: b[54] >> 6, MTU: uverbs.MTU(b[54] & 0x3f), RateSelector: b[55] >> 6, Rate: b[55] & 0x3f,
		PacketLifeTimeSelector: b[56] >> 6, PacketLifeTime: b[56] & 0x3f, Preference: b[57],
	}
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

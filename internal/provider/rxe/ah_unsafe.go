package rxe

import (
	"net/netip"
	"unsafe"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

// AHPlan is the driver's part of creating an address handle.
type AHPlan struct{ resp abi.RxeCreateAhResp }

// Out is the memory for the driver's response, which stays as it is on kernels before 5.17.
func (p *AHPlan) Out() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&p.resp)), unsafe.Sizeof(p.resp))
}

// Way is what the address vector of a work request holds.
type Way struct {
	Port         uint8
	SGID, DGID   [16]byte
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32
	DMAC         [6]byte
}

const (
	familyIPv4 = 2  // AF_INET
	familyIPv6 = 10 // AF_INET6
)

// Numbered tells whether the kernel numbers address handles.
func (p *AHPlan) Numbered() bool { return p.resp.AhNum != 0 }

// Fill makes the address vector. A kernel that numbers address handles looks the way up
// itself; older ones take it from the work request.
func (p *AHPlan) Fill(av *provider.AV, w *Way) {
	av.Number = p.resp.AhNum
	r := (*abi.RxeAv)(unsafe.Pointer(&av.Raw))
	*r = abi.RxeAv{PortNum: w.Port, Dmac: w.DMAC}
	*r.Grh.Dgid.Raw() = w.DGID
	r.Grh.FlowLabel, r.Grh.SgidIndex = w.FlowLabel, w.SGIDIndex
	r.Grh.HopLimit, r.Grh.TrafficClass = w.HopLimit, w.TrafficClass
	dst := netip.AddrFrom16(w.DGID)
	if !dst.Is4In6() {
		r.NetworkType = abi.RXE_NETWORK_TYPE_IPV6
		putIPv6(r.SgidAddrSockaddrIn6(), w.SGID)
		putIPv6(r.DgidAddrSockaddrIn6(), w.DGID)
		return
	}
	r.NetworkType = abi.RXE_NETWORK_TYPE_IPV4
	putIPv4(r.SgidAddrSockaddrIn(), w.SGID)
	putIPv4(r.DgidAddrSockaddrIn(), w.DGID)
}

func putIPv6(s *abi.SockaddrIn6, gid [16]byte) {
	s.Sin6Family = familyIPv6
	*(*[16]byte)(unsafe.Pointer(&s.Sin6Addr)) = gid
}

func putIPv4(s *abi.SockaddrIn, gid [16]byte) {
	s.SinFamily = familyIPv4
	*(*[4]byte)(unsafe.Pointer(&s.SinAddr)) = [4]byte(gid[12:])
}

func putDest(ud *abi.RxeSendWrWrUd, d *provider.Dest) {
	ud.RemoteQpn, ud.RemoteQkey = d.QPN, d.QKey
	if d.AV.Number != 0 {
		ud.AhNum = d.AV.Number
		return
	}
	ud.Av = *(*abi.RxeAv)(unsafe.Pointer(&d.AV.Raw))
}

// The raw way of a work request fits an address vector's room.
var _ [unsafe.Sizeof(provider.AV{}.Raw) - unsafe.Sizeof(abi.RxeAv{})]byte

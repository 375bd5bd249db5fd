package mlx5

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

// AHPlan is the driver's part of creating an address handle, on Ethernet. On InfiniBand
// nothing is asked: the kernel knows nothing that the user does not.
type AHPlan struct{ resp abi.Mlx5IbCreateAhResp }

// Out is the memory for the driver's response.
func (p *AHPlan) Out() []byte { return bytesOf(&p.resp) }

// DMAC is the peer's link-layer address, which the kernel found.
func (p *AHPlan) DMAC() [6]byte { return p.resp.Dmac }

// Way is what a datagram's request says of the way to the peer.
type Way struct {
	Ethernet     bool
	UDP          bool // RoCE version 2: on Ethernet, as the source GID's type says
	Global       bool // GRH; always on Ethernet
	DGID         [16]byte
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32
	SL           uint8
	StaticRate   uint8
	PathBits     uint8   // InfiniBand
	DLID         uint16  // InfiniBand
	DMAC         [6]byte // Ethernet
}

// Where things are in the 48 bytes of a way, as they stand in a request behind the control
// segment.
const (
	wayQKey  = 0
	wayQPN   = 8
	wayRate  = 12
	wayPath  = 13
	wayLID   = 14
	wayDMAC  = 20
	wayClass = 26
	wayHops  = 27
	wayGRH   = 28
	wayGID   = 32

	wayExtended = 1 << 31 // in the queue pair's number: all 48 bytes are there
	wayGlobal   = 1 << 30 // in the word of the GRH
)

// rates translates enum ibv_rate; what is not in it is the port's rate.
var rates = [...]uint8{2: 7, 8, 9, 10, 11, 12, 13, 14, 15, 11, 13, 15, 0, 9, 15, 0, 0, 9, 13}

// FillAV makes the address vector. Source: ibv_create_ah(3).
func FillAV(av *provider.AV, w *Way) {
	clear(av.Raw[:])
	r := av.Raw[:headWay]
	be := binary.BigEndian
	be.PutUint32(r[wayQPN:], wayExtended)
	if int(w.StaticRate) < len(rates) {
		r[wayRate] = rates[w.StaticRate] << 4
	}
	grh := uint32(w.SGIDIndex)<<20 | w.FlowLabel&(1<<20-1)
	if w.Ethernet {
		r[wayRate] |= w.SL & 7 << 1
		if w.UDP {
			be.PutUint16(r[wayLID:], udpPort(w.FlowLabel))
		}
		copy(r[wayDMAC:], w.DMAC[:])
	} else {
		r[wayRate] |= w.SL & 15
		r[wayPath] = w.PathBits & 0x7f
		be.PutUint16(r[wayLID:], w.DLID)
		if !w.Global {
			return
		}
		grh |= wayGlobal
	}
	be.PutUint32(r[wayGRH:], grh)
	r[wayClass], r[wayHops] = w.TrafficClass, w.HopLimit
	copy(r[wayGID:], w.DGID[:])
}

// udpPort is the source port of datagrams, by which routers choose among equal ways: made of
// the flow label (InfiniBand annex A17.9.1), or by chance without one.
func udpPort(label uint32) uint16 {
	const lowest = 0xc000
	label &= 1<<20 - 1
	if label == 0 {
		return lowest | uint16(rand.Uint32())
	}
	return lowest | uint16(label&0x3fff^label>>14)
}

// putWay writes a datagram's way behind the control segment.
func putWay(at addr, d *provider.Dest) {
	raw := &d.AV.Raw
	be := binary.BigEndian
	at.put64(16, uint64(d.QKey)<<32)
	at.put64(24, uint64(d.QPN&lowQPN|wayExtended)<<32|uint64(be.Uint32(raw[wayRate:])))
	for off := uintptr(16); off < headWay; off += 8 {
		at.put64(16+off, be.Uint64(raw[off:]))
	}
}

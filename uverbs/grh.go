package uverbs

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
)

// GRHSize is the room in bytes that a receive for datagrams needs before the message.
const GRHSize = 40

// GRH is the global routing header of a received datagram (IBTA volume 1, 8.3), or on
// RoCE v2 the IP header in its place.
type GRH struct {
	SGID, DGID   GID // of the sender, and the one it sent to
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32
}

// ParseGRH reads the first GRHSize bytes of a datagram's receive. They mean something only
// if the completion says so, see [WC.HasGRH]. An IPv4 header stands in the last 20 of
// them, and its addresses come out as IPv4-mapped GIDs.
//
// Errors: ErrInvalid if b is too short or holds neither header.
func ParseGRH(b []byte) (GRH, error) {
	if len(b) < GRHSize {
		return GRH{}, fmt.Errorf("%w: %d bytes are no routing header, want %d", ErrInvalid, len(b), GRHSize)
	}
	ipv4, isIPv6 := b[20:GRHSize], b[0]>>4 == 6
	switch {
	// Version 4, no options. What is before it may be anything on some devices, so that
	// only the checksum decides; others (rxe, to itself) leave the checksum out.
	case ipv4[0] == 0x45 && (!isIPv6 || sum(ipv4) == 0xffff):
		return GRH{
			SGID: netip.AddrFrom4([4]byte(ipv4[12:16])).As16(), DGID: netip.AddrFrom4([4]byte(ipv4[16:20])).As16(),
			HopLimit: ipv4[8], TrafficClass: ipv4[1],
		}, nil
	case isIPv6:
		first := binary.BigEndian.Uint32(b)
		return GRH{
			SGID: GID(b[8:24]), DGID: GID(b[24:40]), HopLimit: b[7],
			TrafficClass: uint8(first >> 20), FlowLabel: first & 0xfffff,
		}, nil
	}
	return GRH{}, fmt.Errorf("%w: neither an IPv6 nor an IPv4 routing header", ErrInvalid)
}

// sum is the internet checksum's sum (RFC 1071) of a header: all ones if it is right.
func sum(header []byte) uint32 {
	total := uint32(0)
	for i := 0; i < len(header); i += 2 {
		total += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	return total&0xffff + total>>16
}

// AHAttrFromWC says how to answer a datagram: wc is its completion, grh the first GRHSize
// bytes of its receive, port where it came in.
//
// Errors: ErrInvalid; what QueryPort and GIDTable give. Source: ibv_init_ah_from_wc(3).
func (c *Context) AHAttrFromWC(wc *WC, grh []byte, port uint8) (AHAttr, error) {
	const op = "find the way back to a datagram's sender"
	a := AHAttr{DLID: wc.SLID, SL: wc.SL, SrcPathBits: wc.PathBits, PortNum: port}
	if !wc.HasGRH() {
		return a, nil
	}
	h, err := ParseGRH(grh)
	if err != nil {
		return AHAttr{}, wrap(op, c.device, err)
	}
	table, err := c.GIDTable()
	if err != nil {
		return AHAttr{}, err
	}
	own, err := c.gidFor(table, port, h.DGID)
	if err == nil && own.Index > math.MaxUint8 {
		err = invalid(op, c.device, "an address handle cannot name index %d of the GID table", own.Index)
	}
	if err != nil {
		return AHAttr{}, err
	}
	a.IsGlobal, a.DGID, a.SGIDIndex = true, h.SGID, uint8(own.Index)
	a.HopLimit, a.TrafficClass, a.FlowLabel = 0xff, h.TrafficClass, h.FlowLabel
	return a, nil
}

// gidFor finds the entry that a datagram was sent to. What was sent to a group is answered
// from any address of the same family.
func (c *Context) gidFor(table []GIDEntry, port uint8, dgid GID) (GIDEntry, error) {
	if !dgid.Addr().IsMulticast() {
		return FindGID(table, int(port), dgid.Addr())
	}
	for _, e := range table {
		if e.Port == int(port) && e.Type != GIDTypeRoCEv1 && e.GID.Addr().Is4() == dgid.Addr().Is4() {
			return e, nil
		}
	}
	return GIDEntry{}, invalid("find GID", c.device, "port %d has no address of the group's family", port)
}

// CreateAHFromWC makes the address handle with which a datagram is answered. Arguments and
// errors: as AHAttrFromWC and CreateAH. Source: ibv_create_ah_from_wc(3).
func (p *PD) CreateAHFromWC(wc *WC, grh []byte, port uint8) (*AH, error) {
	attr, err := p.ctx.AHAttrFromWC(wc, grh, port)
	if err != nil {
		return nil, err
	}
	return p.CreateAH(&attr)
}

//go:build linux

package fakekernel

import "encoding/binary"

// A datagram lands behind the header that it came with: 40 bytes of IPv6, or IPv4 in the
// last 20 of them.
const (
	grhSize    = 40
	ipv4Header = 20
	ipv4Offset = grhSize - ipv4Header

	// What comes in a packet behind the IP header, but for the data: UDP, BTH, DETH, ICRC.
	datagramHeaders = 8 + 12 + 8 + 4
	protocolUDP     = 17

	multicastQPN = 0xff_ffff
)

// sendDatagram: sw/rxe/rxe_req.c. One that is too long for the port is not sent, and that
// is no error.
func (k *Kernel) sendDatagram(q *qp, w *work) verdict {
	if w.length > q.f.dev.mtu() {
		return verdict{}
	}
	to, ok := q.way(w)
	if !ok || to.src.Is4() != to.dst.Is4() {
		return verdict{status: statusLocalQPOp}
	}
	if status := k.nic.gather(q, w); status != statusSuccess {
		return verdict{status: status}
	}
	q.sendPSN = (q.sendPSN + 1) & psnMask
	if k.cut || q.f.dev.dead {
		return verdict{}
	}
	if to.dst.IsMulticast() {
		k.multicast(q, w, &to)
		return verdict{}
	}
	if d := k.deviceAt(to.dst); d != nil {
		if p := d.qps[w.to.RemoteQpn]; p != nil {
			k.receiveDatagram(p, q, w, &to)
		}
	}
	return verdict{}
}

// receiveDatagram: one that does not find the right queue pair, the right key and a
// receive request is lost.
func (k *Kernel) receiveDatagram(p, q *qp, w *work, to *way) {
	if p.typ != q.typ || !p.receives() || p.attr.Qkey != w.to.RemoteQkey {
		return
	}
	r := &k.nic.recv
	if !p.rq.peek(r) {
		return
	}
	n := nakMalformed
	switch {
	case r.num > p.maxRecvSGE():
	case k.version >= v604 && r.room() < uint64(w.length)+grhSize:
		n = nakLength
	default:
		k.nic.writeGRH(to, int(w.length), p.f.dev == q.f.dev)
		k.nic.src = append(append(k.nic.src[:0], spanOf(k.nic.grh[:])), k.nic.local...)
		n = k.land(p, w, k.nic.src, w.length+grhSize)
	}
	v := k.drop(p, w, n, true)
	if n == nakNone {
		v.wc.ByteLen += grhSize
		v.wc.SrcQp = q.num
	}
	v.finish(k)
}

// writeGRH makes the header of a packet with n bytes of data. One that never left the
// device has no checksum.
func (nic *nic) writeGRH(to *way, n int, loopback bool) {
	h := nic.grh[:]
	clear(h)
	n += -n&3 + datagramHeaders
	if to.src.Is4() {
		writeIPv4(h[ipv4Offset:], to, n)
		if !loopback {
			binary.BigEndian.PutUint16(h[ipv4Offset+10:], checksum(h[ipv4Offset:]))
		}
		return
	}
	h[0], h[1] = 6<<4|to.trafficClass>>4, to.trafficClass<<4
	binary.BigEndian.PutUint16(h[4:], uint16(n))
	h[6], h[7] = protocolUDP, to.hopLimit
	src, dst := to.src.As16(), to.dst.As16()
	copy(h[8:], src[:])
	copy(h[24:], dst[:])
}

func writeIPv4(h []byte, to *way, n int) {
	const dontFragment = 0x40
	h[0], h[1] = 4<<4|ipv4Header/4, to.trafficClass
	binary.BigEndian.PutUint16(h[2:], uint16(ipv4Header+n))
	h[6], h[8], h[9] = dontFragment, to.hopLimit, protocolUDP
	src, dst := to.src.As4(), to.dst.As4()
	copy(h[12:], src[:])
	copy(h[16:], dst[:])
}

// checksum is that of an IPv4 header, whose own field is zero.
func checksum(h []byte) uint16 {
	var sum uint32
	for i := 0; i < ipv4Header; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

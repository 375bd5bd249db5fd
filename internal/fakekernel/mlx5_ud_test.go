//go:build linux

package fakekernel

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// datagramPair is two queue pairs of type UD, ready to send.
func datagramPair(t *testing.T, version string) (a, b *mlxQP) {
	k := mlx5Kernel(t, version, MLX5{})
	one, two := openMLX5(t, k), openMLX5(t, k)
	two.nextUidx = 0x100
	a = (&mlxQP{d: one, typ: abi.IB_UVERBS_QPT_UD}).create()
	b = (&mlxQP{d: two, typ: abi.IB_UVERBS_QPT_UD}).create()
	mlx5Connect(t, a, b, 0)
	return a, b
}

// createAH asks the kernel for the address of the interface behind a GID.
func (d *mlxDev) createAH(dgid [16]byte, sgid uint8, rate uint8, room int) (mac [6]byte, answer []byte, err error) {
	in := abi.IbUverbsCreateAh{PdHandle: d.pd}
	in.Attr.PortNum, in.Attr.IsGlobal, in.Attr.StaticRate = 1, 1, rate
	in.Attr.Grh.Dgid, in.Attr.Grh.SgidIndex = dgid, sgid
	var r abi.IbUverbsCreateAhResp
	answer = make([]byte, room)
	for i := range answer {
		answer[i] = 0xee
	}
	err = d.invoke(uapi.CreateAH, bytesOf(&in), bytesOf(&r), nil, answer)
	if room >= 10 {
		mac = [6]byte(answer[4:])
	}
	return mac, answer, err
}

// address is the address vector of a datagram to b.
func (q *mlxQP) address(b *mlxQP) []byte {
	q.d.t.Helper()
	gid := [16]byte(bytesOf(&b.d.gid.Gid))
	mac, _, err := q.d.createAH(gid, uint8(q.d.gid.GidIndex), 0, 16)
	must(q.d.t, err)
	av := make([]byte, avSize)
	be.PutUint32(av[avQKey:], b.qkey)
	be.PutUint32(av[avQPN:], b.num|avExtended)
	av[avHopLimit], av[avClass] = 7, 0x21
	copy(av[avMAC:], mac[:])
	be.PutUint32(av[avRoute:], q.d.gid.GidIndex<<20)
	copy(av[avGID:], gid[:])
	return av
}

func TestMLX5Datagram(t *testing.T) {
	for gid := range 3 { // link-local, IPv4, IPv6
		a, b := datagramPair(t, "")
		a.d.gid, b.d.gid = a.d.k.devices[0].gids[gid], b.d.k.devices[0].gids[gid]
		testDatagram(t, a, b)
	}
}

func testDatagram(t *testing.T, a, b *mlxQP) {
	to := a.address(b)
	copy(a.mr.mem, "datagram")
	b.recvs(append(b.mr.sge(0, 40), b.mr.sge(100, 60)...))
	wantCQE(t, "send", a.do(mlx5SendImm, 9, to, a.mr.sge(0, 8)), cqeRequest, 0, 0)
	e := b.recv.one()
	wantCQE(t, "receive", e, cqeRecvSendImm, 0, 0)
	if e.bytes() != 48 || be.Uint32(e[24:]) != 2<<28|a.num || e.imm() != 9 || e.index() != b.uidx {
		t.Errorf("receive: %d bytes, flags %#x, immediate %d, index %#x", e.bytes(), be.Uint32(e[24:]), e.imm(), e.index())
	}
	if got := string(b.mr.mem[100:108]); got != "datagram" {
		t.Errorf("received %q", got)
	}
	gid := bytesOf(&a.d.gid.Gid)
	if gid[10] == 0xff && b.mr.mem[20] != 0x45 || gid[10] != 0xff && string(b.mr.mem[8:24]) != string(gid) {
		t.Errorf("header % x", b.mr.mem[:40])
	}
	b.recvs(b.mr.sge(0, 100))
	be.PutUint32(to[avQKey:], qpQKey) // the sender's own
	wantCQE(t, "inline", a.do(mlx5Send, 0, to, inlineData("also through the end of the first block")), cqeRequest, 2, 0)
	wantCQE(t, "receive", b.recv.one(), cqeRecvSend, 1, 0)
	if got := string(b.mr.mem[40:79]); got != "also through the end of the first block" {
		t.Errorf("received %q", got)
	}
}

// TestMLX5Multicast: a datagram to a group reaches all members.
func TestMLX5Multicast(t *testing.T) {
	a, b := datagramPair(t, "")
	group := abi.IbUverbsAttachMcast{QpHandle: b.handle, Gid: [16]byte{0xff, 0x12, 15: 9}}
	must(t, b.d.invoke(uapi.AttachMcast, bytesOf(&group), nil, nil, nil))
	a.d.gid = a.d.k.devices[0].gids[2]
	to := a.address(b)
	mac, _, err := a.d.createAH(group.Gid, 2, 0, 16)
	must(t, err)
	copy(to[avMAC:], mac[:])
	copy(to[avGID:], group.Gid[:])
	be.PutUint32(to[avQPN:], avExtended|multicastQPN)
	b.recvs(b.mr.sge(0, 100))
	wantCQE(t, "send", a.do(mlx5Send, 0, to, inlineData("to all")), cqeRequest, 0, 0)
	wantCQE(t, "receive", b.recv.one(), cqeRecvSend, 0, 0)
	if got := string(b.mr.mem[40:46]); got != "to all" {
		t.Errorf("received %q", got)
	}
}

// TestMLX5DatagramLost: what is wrong with the address is no error, but nothing arrives.
func TestMLX5DatagramLost(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(av []byte)
	}{
		{"key", func(av []byte) { av[3]++ }},
		{"number", func(av []byte) { av[11]++ }},
		{"link address", func(av []byte) { av[avMAC]++ }},
		{"address", func(av []byte) { av[avGID+15]++ }},
	} {
		a, b := datagramPair(t, "")
		to := a.address(b)
		tt.edit(to)
		b.recvs(b.mr.sge(0, 100))
		wantCQE(t, tt.name, a.do(mlx5Send, 0, to, a.mr.sge(0, 8)), cqeRequest, 0, 0)
		b.recv.none(tt.name)
	}
}

// TestMLX5DatagramFaults: the sender goes on receiving after an error of its own.
func TestMLX5DatagramFaults(t *testing.T) {
	for _, tt := range []struct {
		name     string
		opcode   byte
		syndrome byte
		post     func(a, b *mlxQP) [][]byte
	}{
		{"too long", mlx5Send, 0x01, func(a, b *mlxQP) [][]byte { return [][]byte{a.address(b), a.mr.sge(0, 4097)} }},
		{"key", mlx5Send, 0x04, func(a, b *mlxQP) [][]byte { return [][]byte{a.address(b), dataSegment(8, 1, 1)} }},
		{"write", mlx5Write, 0x02, func(a, b *mlxQP) [][]byte { return [][]byte{a.address(b), a.mr.sge(0, 8)} }},
		{"short address", mlx5Send, 0x02, func(a, b *mlxQP) [][]byte {
			av := a.address(b)
			av[8] = 0
			return [][]byte{av, a.mr.sge(0, 8)}
		}},
	} {
		a, b := datagramPair(t, "")
		wantCQE(t, tt.name, a.do(tt.opcode, 0, tt.post(a, b)...), cqeRequestError, 0, tt.syndrome)
		if got := a.state(); got != stateSQE {
			t.Errorf("%s: state %d, want %d", tt.name, got, stateSQE)
		}
		a.post(mlx5Send, 0, 0, a.address(b), a.mr.sge(0, 8))
		wantCQE(t, tt.name+", later", a.send.one(), cqeRequestError, uint16(a.cur-2), 0x05)
		a.recvs(a.mr.sge(0, 100))
		b.do(mlx5Send, 0, b.address(a), b.mr.sge(0, 8))
		wantCQE(t, tt.name+", receive", a.recv.one(), cqeRecvSend, 0, 0)
		must(t, a.modify(abi.IbUverbsModifyQp{AttrMask: maskState | maskCurState, CurQpState: stateSQE, QpState: stateRTS}))
		wantCQE(t, tt.name+", mended", a.do(mlx5Nop, 0), cqeRequest, uint16(a.cur-1), 0)
	}
}

// TestMLX5DatagramTooLong: a receive that is too short is the receiver's fault.
func TestMLX5DatagramTooLong(t *testing.T) {
	for _, version := range []string{"6.1", "7.2"} {
		a, b := datagramPair(t, version)
		b.recvs(b.mr.sge(0, 47))
		wantCQE(t, "send", a.do(mlx5Send, 0, a.address(b), a.mr.sge(0, 8)), cqeRequest, 0, 0)
		wantCQE(t, "receive", b.recv.one(), cqeResponseError, 0, 0x01)
		if got := b.state(); got != stateError {
			t.Errorf("state %d, want %d", got, stateError)
		}
	}
}

// TestMLX5Unreliable: writes and sends arrive, and what does not is not missed.
func TestMLX5Unreliable(t *testing.T) {
	a, b := mlx5Pair(t, mlx5Kernel(t, "", MLX5{}), mlxQP{typ: abi.IB_UVERBS_QPT_UC})
	copy(a.mr.mem, "unreliable")
	there := remote(b.mr.addr(0), b.mr.key)
	wantCQE(t, "write", a.do(mlx5Write, 0, there, a.mr.sge(0, 10)), cqeRequest, 0, 0)
	if got := string(b.mr.mem[:10]); got != "unreliable" {
		t.Errorf("written %q", got)
	}
	wantCQE(t, "send without receive", a.do(mlx5Send, 0, a.mr.sge(0, 8)), cqeRequest, 1, 0)
	wantCQE(t, "remote key", a.do(mlx5Write, 0, remote(0, 1), a.mr.sge(0, 8)), cqeRequest, 2, 0)
	b.recvs(b.mr.sge(0, 8))
	wantCQE(t, "send", a.do(mlx5SendImm, 1, a.mr.sge(0, 8)), cqeRequest, 3, 0)
	wantCQE(t, "receive", b.recv.one(), cqeRecvSendImm, 0, 0)
	wantCQE(t, "read", a.do(mlx5Read, 0, there, a.mr.sge(0, 8)), cqeRequestError, 4, 0x02)
}

// TestMLX5AddressHandle: the answer, and what is refused.
func TestMLX5AddressHandle(t *testing.T) {
	for _, version := range []string{"5.10", "6.1", "6.12", "7.2"} {
		d := openMLX5(t, mlx5Kernel(t, version, MLX5{}))
		gid := [16]byte(bytesOf(&d.gid.Gid))
		mac, answer, err := d.createAH(gid, 0, 0, 16)
		must(t, err)
		text := "0a000000 ???????????? eeeeeeeeeeee"
		if version == "7.2" {
			text = "0a000000 ???????????? 000000000000"
		}
		golden(t, version, answer, text)
		if mac != [6]byte(d.k.devices[0].mac()) {
			t.Errorf("link address % x", mac)
		}
		other := gid
		other[15]++
		if far, _, _ := d.createAH(other, 0, 0, 16); far == mac || far[0]&1 != 0 {
			t.Errorf("link address of another: % x", far)
		}
		group := [16]byte{0xff, 0x12, 12: 1, 2, 3, 4}
		if mac, _, _ = d.createAH(group, 0, 0, 16); mac != [6]byte{0x33, 0x33, 1, 2, 3, 4} {
			t.Errorf("link address of a group: % x", mac)
		}
		_, _, err = d.createAH(gid, 0, 0, 9)
		want(t, version+": no room", err, unix.EINVAL)
		_, _, err = d.createAH(gid, 99, 0, 16)
		want(t, version+": no such GID", err, unix.ENODATA)
		_, _, err = d.createAH(gid, 0, 1, 16)
		rate := unix.Errno(0)
		if version >= "6.12" {
			rate = unix.EINVAL
		}
		if version == "5.10" || version == "6.1" {
			rate = 0
		}
		want(t, version+": rate", err, rate)
	}
}

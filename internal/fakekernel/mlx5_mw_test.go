//go:build linux

package fakekernel

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

func (d *mlxDev) mw(typ uint8) (handle, rkey uint32) {
	d.t.Helper()
	var r abi.IbUverbsAllocMwResp
	must(d.t, d.invoke(uapi.AllocMW, bytesOf(&abi.IbUverbsAllocMw{PdHandle: d.pd, MwType: typ}), bytesOf(&r), nil, nil))
	return r.MwHandle, r.Rkey
}

// bindType2 is what follows the control segment of a bind: the request of the C library.
func (q *mlxQP) bindType2(rkey uint32, access byte, start uint64, off, n int) []byte {
	b := make([]byte, 192-segment)
	b[0] = 0xb0
	be.PutUint16(b[4:], 4)
	be.PutUint64(b[8:], 0x203c6041)
	key := b[48:]
	key[2] = access
	be.PutUint32(key[4:], q.num<<8|rkey&0xff)
	be.PutUint64(key[16:], start)
	be.PutUint64(key[24:], uint64(n))
	copy(b[112:], dataSegment(uint32(n), q.mr.key, q.mr.addr(off)))
	return b
}

// unbindType2 is a LOCAL INVALIDATE.
func unbindType2() []byte {
	b := make([]byte, 128-segment)
	b[0] = 0x98
	be.PutUint64(b[8:], 0x20006000)
	b[48] = 0x40
	be.PutUint32(b[52:], 0xffffff00)
	return b
}

func TestMLX5Window(t *testing.T) {
	a, b := mlx5Pair(t, mlx5Kernel(t, "", MLX5{}), mlxQP{})
	_, rkey := b.d.mw(2)
	bound := rkey&^0xff | 0x5a
	copy(a.mr.mem, "through the window")
	bind := func(access byte, start uint64) cqe {
		return b.do(mlx5UMR, rkey, b.bindType2(bound, access, start, 4096, 100))
	}
	e := bind(umrRemoteWrite, b.mr.addr(4096))
	wantCQE(t, "bind", e, cqeRequest, 0, 0)
	if e.sop() != mlx5UMR {
		t.Errorf("opcode of a bind %#x", e.sop())
	}
	wantCQE(t, "write", a.do(mlx5Write, 0, remote(b.mr.addr(4096), bound), a.mr.sge(0, 18)), cqeRequest, 0, 0)
	if got := string(b.mr.mem[4096:4114]); got != "through the window" {
		t.Errorf("written %q", got)
	}
	rkey = bound
	wantCQE(t, "invalidate", b.do(mlx5UMR, bound, unbindType2()), cqeRequest, 3, 0)
	wantCQE(t, "bind from zero", bind(umrRemoteWrite|umrRemoteRead, 0), cqeRequest, 5, 0)
	wantCQE(t, "read from zero", a.do(mlx5Read, 0, remote(8, bound), a.mr.sge(100, 3)), cqeRequest, 1, 0)
	if got := string(a.mr.mem[100:103]); got != "the" {
		t.Errorf("read %q", got)
	}
	a.recvs(a.mr.sge(0, 8))
	b.recvs(b.mr.sge(0, 8))
	wantCQE(t, "send with invalidate", a.do(mlx5SendInv, bound, a.mr.sge(0, 8)), cqeRequest, 2, 0)
	e = b.recv.one()
	wantCQE(t, "its receive", e, cqeRecvSendInv, 0, 0)
	if e.imm() != bound {
		t.Errorf("invalidated %#x, want %#x", e.imm(), bound)
	}
	wantCQE(t, "closed window", a.do(mlx5Read, 0, remote(8, bound), a.mr.sge(100, 3)), cqeRequestError, 3, 0x13)
}

// TestMLX5WindowFaults: what cannot be bound or unbound.
func TestMLX5WindowFaults(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(b *mlxQP, rkey uint32) (imm uint32, request []byte)
	}{
		{"another key", func(b *mlxQP, rkey uint32) (uint32, []byte) {
			return rkey + 1, b.bindType2(rkey, umrRemoteRead, b.mr.addr(0), 0, 8)
		}},
		{"outside the region", func(b *mlxQP, rkey uint32) (uint32, []byte) {
			return rkey, b.bindType2(rkey, umrRemoteRead, b.mr.addr(65532), 65532, 8)
		}},
		{"unbind what is not bound", func(_ *mlxQP, rkey uint32) (uint32, []byte) { return rkey, unbindType2() }},
	} {
		_, b := mlx5Pair(t, mlx5Kernel(t, "", MLX5{}), mlxQP{})
		_, rkey := b.d.mw(2)
		imm, request := tt.do(b, rkey)
		wantCQE(t, tt.name, b.do(mlx5UMR, imm, request), cqeRequestError, 0, 0x06)
	}
}

// TestMLX5WindowOwner: only who bound a window of type 2 invalidates it.
func TestMLX5WindowOwner(t *testing.T) {
	k := mlx5Kernel(t, "", MLX5{})
	a, b := mlx5Pair(t, k, mlxQP{})
	c := b.d.qp()
	mlx5Connect(t, c, a.d.qp(), 7)
	_, rkey := b.d.mw(2)
	wantCQE(t, "bind", b.do(mlx5UMR, rkey, b.bindType2(rkey, umrRemoteRead, b.mr.addr(0), 0, 64)), cqeRequest, 0, 0)
	wantCQE(t, "another", c.do(mlx5UMR, rkey, unbindType2()), cqeRequestError, 0, 0x06)
	wantCQE(t, "read", a.do(mlx5Read, 0, remote(b.mr.addr(0), rkey), a.mr.sge(0, 8)), cqeRequest, 0, 0)
}

// TestMLX5WindowType1: the key that the library counts up, and what unbinds.
func TestMLX5WindowType1(t *testing.T) {
	a, b := mlx5Pair(t, mlx5Kernel(t, "", MLX5{}), mlxQP{})
	_, rkey := b.d.mw(1)
	request := func(n int) []byte {
		r := b.bindType2(rkey+1, umrRemoteRead, b.mr.addr(0), 0, 64)
		r[0] = 0x90
		be.PutUint64(r[8:], 0x203c2041)
		be.PutUint32(r[52:], 0xffffff00|(rkey+1)&0xff)
		if n == 0 {
			be.PutUint64(r[8:], 0x20002000)
			r = r[:128-segment]
		}
		return r
	}
	wantCQE(t, "bind", b.do(mlx5UMR, rkey, request(64)), cqeRequest, 0, 0)
	rkey++
	wantCQE(t, "read", a.do(mlx5Read, 0, remote(b.mr.addr(0), rkey), a.mr.sge(0, 8)), cqeRequest, 0, 0)
	wantCQE(t, "unbind", b.do(mlx5UMR, rkey, request(0)), cqeRequest, 3, 0)
	wantCQE(t, "read again", a.do(mlx5Read, 0, remote(b.mr.addr(0), rkey+1), a.mr.sge(0, 8)), cqeRequestError, 1, 0x13)
}

func TestMLX5WindowErrnos(t *testing.T) {
	for _, tt := range []struct {
		version string
		in      []byte
		want    unix.Errno
	}{
		{"6.1", nil, 0},
		{"6.1", make([]byte, 8), 0},
		{"6.1", []byte{1, 0, 0, 0, 0, 0, 0, 0}, unix.EOPNOTSUPP},
		{"6.1", []byte{0, 0, 0, 0, 9, 0, 0, 0}, 0},
		{"6.1", []byte{0, 0, 0, 0, 0, 0, 1, 0}, unix.EOPNOTSUPP},
		{"6.1", []byte{0, 0, 0, 0, 0, 0, 0, 0, 1}, unix.EOPNOTSUPP},
		{"6.1", make([]byte, 4), 0},
		{"7.2", make([]byte, 4), unix.EINVAL},
	} {
		d := openMLX5(t, mlx5Kernel(t, tt.version, MLX5{}))
		var r abi.IbUverbsAllocMwResp
		answer := [2]uint32{7, 7}
		err := d.invoke(uapi.AllocMW, bytesOf(&abi.IbUverbsAllocMw{PdHandle: d.pd, MwType: 2}), bytesOf(&r), tt.in, bytesOf(&answer))
		want(t, tt.version, err, tt.want)
		if err == nil && answer != [2]uint32{0, 8} {
			t.Errorf("answer %v", answer)
		}
	}
}

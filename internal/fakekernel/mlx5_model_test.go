//go:build linux

package fakekernel

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// TestMLX5OtherProcess: memory of another process, which is this one by its number, is
// reached in another way: in two steps.
func TestMLX5OtherProcess(t *testing.T) {
	for _, who := range []struct{ a, b userMem }{{userMem(os.Getpid()), 0}, {0, userMem(os.Getpid())}, {userMem(os.Getpid()), userMem(os.Getpid())}} {
		k := mlx5Kernel(t, "", MLX5{})
		d, e := openMLX5(t, k), openMLX5(t, k)
		d.f.(*verbsFile).mem, e.f.(*verbsFile).mem = who.a, who.b
		a, b := d.qp(), e.qp()
		mlx5Connect(t, a, b, 7)
		copy(a.mr.mem, "across processes")
		b.recvs(append(b.mr.sge(0, 3), b.mr.sge(50, 60)...))
		a.do(mlx5Send, 0, a.mr.sge(0, 7), a.mr.sge(7, 9))
		b.recv.one()
		a.do(mlx5Write, 0, remote(b.mr.addr(200), b.mr.key), inlineData("inline"))
		a.do(mlx5Read, 0, remote(b.mr.addr(50), b.mr.key), a.mr.sge(300, 13))
		word := view[uint64](b.mr.mem[1024:])
		*word = 5
		a.do(mlx5Add, 0, remote(b.mr.addr(1024), b.mr.key), append(be.AppendUint64(nil, 4), make([]byte, 8)...), a.mr.sge(400, 8))
		got := string(b.mr.mem[:3]) + string(b.mr.mem[50:63]) + string(b.mr.mem[200:206]) + string(a.mr.mem[300:313])
		if got != "across processesinlineoss processes" || *word != 9 || a.mr.mem[400] != 5 {
			t.Errorf("%v: %q, counter %d, brought %d", who, got, *word, a.mr.mem[400])
		}
		wantCQE(t, "bad address", a.do(mlx5Send, 0, a.mr.sge(1<<16, 8)), cqeRequestError, 4, 0x04)
	}
}

// TestMove copies between this process and a child, whose stack has room below.
func TestMove(t *testing.T) {
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	must(t, err)
	must(t, child.Start())
	t.Cleanup(func() { in.Close(); child.Wait() })
	there := userMem(child.Process.Pid)
	stack := stackOf(t, there)
	if !there.mapped(stack, 4096, true) || there.mapped(8, 8, false) {
		t.Error("what is mapped in the child")
	}
	here := pages(t, 4096)
	copy(here, "to the child")
	own := func(off, n int) span { return spanOf(here[off : off+n]) }
	far := func(off, n int) span {
		return span{RemoteIovec: unix.RemoteIovec{Base: uintptr(stack) + uintptr(off), Len: n}, mem: there}
	}
	var m mover
	must(t, m.move([]span{far(0, 5), far(64, 7)}, []span{own(0, 12)}, 12))
	must(t, m.move([]span{far(128, 12)}, []span{far(0, 5), far(64, 7)}, 12))
	must(t, m.move([]span{own(100, 3), own(200, 9)}, []span{far(128, 12)}, 12))
	must(t, m.move([]span{own(300, 4), far(256, 4)}, []span{own(0, 4), far(0, 4)}, 8))
	must(t, m.move([]span{own(304, 4)}, []span{far(256, 4)}, 4))
	if got := string(here[100:103]) + string(here[200:209]) + string(here[300:308]); got != "to the childto tto t" {
		t.Errorf("there and back: %q", got)
	}
	for _, bad := range []struct{ dst, src []span }{
		{[]span{own(0, 4)}, []span{far(0, 8)}}, {[]span{own(0, 8)}, []span{far(0, 4)}},
		{[]span{own(0, 8)}, []span{{RemoteIovec: unix.RemoteIovec{Base: 8, Len: 8}, mem: there}}},
	} {
		want(t, "too little room or a bad address", m.move(bad.dst, bad.src, 8), unix.EFAULT)
	}
}

// stackOf is the lowest address of a process's stack.
func stackOf(t *testing.T, m userMem) uint64 {
	maps, err := os.ReadFile("/proc/" + strconv.Itoa(m.pid()) + "/maps")
	must(t, err)
	for line := range bytes.Lines(maps) {
		if bytes.Contains(line, []byte("[stack]")) {
			lo, _, _ := parseMap(line)
			return lo
		}
	}
	t.Fatal("no stack")
	return 0
}

// TestMLX5Frame: a front end gives the kernel a copy of the frame, in which handles and
// flags come back.
func TestMLX5Frame(t *testing.T) {
	d := openMLX5(t, mlx5Kernel(t, "", MLX5{}))
	f := d.f.(*verbsFile)
	f.mem = userMem(os.Getpid())
	words := make([]uint64, 64)
	frame := uapi.SliceBytes(words)
	hdr := view[abi.IbUverbsIoctlHdr](frame)
	hdr.ObjectId, hdr.MethodId, hdr.DriverId = abi.MLX5_IB_OBJECT_UAR, abi.MLX5_IB_METHOD_UAR_OBJ_ALLOC, abi.RDMA_DRIVER_MLX5
	out := pages(t, 4096)
	for i, a := range []struct {
		id, size uint16
		data     uint64
	}{
		{abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 0, 0}, {abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, 8, 1},
		{abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, 8, uapi.Addr(out)},
		{abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, 4, uapi.Addr(out) + 8},
		{abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, 4, uapi.Addr(out) + 12},
	} {
		at := frameAttr(frame, i)
		at.AttrId, at.Len, at.Flags, *at.Data() = a.id, a.size, abi.UVERBS_ATTR_F_MANDATORY, a.data
		hdr.NumAttrs++
	}
	hdr.Length = uint16(hdrSize) + hdr.NumAttrs*uint16(attrSize)
	must(t, checkFrame(hdr))
	must(t, f.ioctl(frame[:hdr.Length]))
	if handle := *frameAttr(frame, 0).Data(); handle == 0 || f.objects[uint32(handle)] == nil {
		t.Errorf("handle %d", handle)
	}
	if frameAttr(frame, 4).Flags&abi.UVERBS_ATTR_F_VALID_OUTPUT == 0 {
		t.Error("the output is not marked as valid")
	}
	golden(t, "answer", out[:16], "0020900000000000 00100000 22000000")
}

// TestMLX5Backing: the registers of a process that a front end serves are in the file that
// stands for its device.
func TestMLX5Backing(t *testing.T) {
	k := mlx5Kernel(t, "", MLX5{})
	fd, err := unix.MemfdCreate("device", unix.MFD_CLOEXEC)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Ftruncate(fd, 64<<20))
	d := openMLX5(t, k)
	d.f.(*verbsFile).backing = fd
	u := d.uar(abi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF)
	native, err := unix.Mmap(fd, 0x902000, 4096, unix.PROT_WRITE|unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(native)
	u.mem[1] = 7
	if native[1] != 7 {
		t.Error("the page is not at its offset of the file")
	}
	d.bf = mlxUAR{id: u.id, mem: native}
	a, b := d.qp(), d.qp()
	mlx5Connect(t, a, b, 7)
	wantCQE(t, "doorbell", a.do(mlx5Write, 0, remote(b.mr.addr(0), b.mr.key), a.mr.sge(0, 8)), cqeRequest, 0, 0)
}

// TestMLX5NoExec: nothing hears doorbells.
func TestMLX5NoExec(t *testing.T) {
	k := mlx5Kernel(t, "", MLX5{NoExec: true})
	before := runtime.NumGoroutine()
	d := openMLX5(t, k)
	a, b := d.qp(), d.qp()
	mlx5Connect(t, a, b, 7)
	a.post(mlx5Write, wqeCompletion, 0, remote(b.mr.addr(0), b.mr.key), a.mr.sge(0, 8))
	a.send.none("without the model")
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, before it %d", n, before)
	}
}

// TestMLX5Close: with the kernel its goroutine ends, and nothing is left but mappings.
func TestMLX5Close(t *testing.T) {
	before := runtime.NumGoroutine()
	k := New(Options{Devices: []Device{{Driver: abi.RDMA_DRIVER_MLX5}}})
	d := openMLX5(t, k)
	a, b := d.qp(), (&mlxQP{d: d, srq: d.srq(4)}).create()
	mlx5Connect(t, a, b, 7)
	a.do(mlx5Write, 0, remote(b.mr.addr(0), b.mr.key), a.mr.sge(0, 8))
	must(t, d.f.Close())
	if k.pinned != 0 || len(k.devices[0].qps)+len(k.devices[0].mrs) != 0 {
		t.Errorf("%d bytes pinned, %d queue pairs, %d regions", k.pinned, len(k.devices[0].qps), len(k.devices[0].mrs))
	}
	must(t, d.f.Unmap(d.nc.mem))
	must(t, d.f.Unmap(d.bf.mem))
	if n := len(k.devices[0].hw.pages) + len(k.uars); n != 0 {
		t.Errorf("%d pages of registers are left", n)
	}
	k.Close()
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d goroutines, before it %d", runtime.NumGoroutine(), before)
}

// TestMLX5Idle: who has nothing to do takes no CPU to speak of.
func TestMLX5Idle(t *testing.T) {
	d := openMLX5(t, mlx5Kernel(t, "", MLX5{}))
	for range 16 {
		d.cq(8)
	}
	time.Sleep(20 * time.Millisecond)
	var start, end unix.Rusage
	must(t, unix.Getrusage(unix.RUSAGE_SELF, &start))
	time.Sleep(200 * time.Millisecond)
	must(t, unix.Getrusage(unix.RUSAGE_SELF, &end))
	used := time.Duration(end.Utime.Nano() + end.Stime.Nano() - start.Utime.Nano() - start.Stime.Nano())
	if used > 60*time.Millisecond {
		t.Errorf("%v of CPU in 200 ms", used)
	}
	t.Logf("%v of CPU in 200 ms", used)
}

// TestMLX5Unplug: the device goes while doorbells ring.
func TestMLX5Unplug(t *testing.T) {
	k := mlx5Kernel(t, "", MLX5{})
	a, b := mlx5Pair(t, k, mlxQP{})
	a.do(mlx5Write, 0, remote(b.mr.addr(0), b.mr.key), a.mr.sge(0, 8))
	k.Disassociate("mlx5_0")
	a.post(mlx5Write, wqeCompletion, 0, remote(b.mr.addr(0), b.mr.key), a.mr.sge(0, 8))
	a.send.none("of a device that is gone")
	if got := a.d.asyncEvent(time.Second); got != asyncDeviceFatal {
		t.Errorf("event %d, want %d", got, asyncDeviceFatal)
	}
	must(t, mlx5cmd(uapi.QPDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, a.handle).
		Out(abi.UVERBS_ATTR_DESTROY_QP_RESP, make([]byte, 4)).Do(a.d.f))
}

// TestMLX5Many: queue pairs of two files that share registers, from several goroutines.
func TestMLX5Many(t *testing.T) {
	k := mlx5Kernel(t, "", MLX5{})
	d, e := openMLX5(t, k), openMLX5(t, k)
	type end struct{ a, b *mlxQP }
	var ends []end
	for range 4 {
		x := end{(&mlxQP{d: d}).create(), (&mlxQP{d: e}).create()}
		mlx5Connect(t, x.a, x.b, 7)
		ends = append(ends, x)
	}
	var running sync.WaitGroup
	var bell sync.Mutex
	for _, x := range ends {
		running.Go(func() {
			for i := range 200 {
				x.b.recvs(x.b.mr.sge(0, 8))
				put64(x.a.mr.mem, uint64(i))
				last := x.a.queue(mlx5Send, wqeCompletion, 0, x.a.mr.sge(0, 8))
				bell.Lock() // the register is shared, and so is its half
				x.a.ring(last)
				bell.Unlock()
				if e := x.a.send.one(); e.opcode() != cqeRequest {
					t.Errorf("send %d: syndrome %#x", i, e.syndrome())
					return
				}
				x.b.recv.one()
				if got := *view[uint64](x.b.mr.mem); got != uint64(i) {
					t.Errorf("received %d, want %d", got, i)
				}
			}
		})
	}
	running.Wait()
}

func put64(b []byte, v uint64) { *view[uint64](b) = v }

// TestMLX5Delays: completions of sends are held back, and requests wait for others by a
// fence.
func TestMLX5Delays(t *testing.T) {
	k := start(t, Options{AckDelay: 2 * time.Millisecond, Deferred: true, Devices: []Device{{Driver: abi.RDMA_DRIVER_MLX5}}})
	a, b := mlx5Pair(t, k, mlxQP{})
	b.recvs(b.mr.sge(0, 8))
	*view[uint64](b.mr.mem[64:]) = 7
	a.queue(mlx5Read, wqeCompletion, 0, remote(b.mr.addr(64), b.mr.key), a.mr.sge(0, 8))
	a.ring(a.queue(mlx5Send, wqeCompletion|wqeFence, 0, a.mr.sge(0, 8)))
	b.recv.one()
	if got := *view[uint64](b.mr.mem); got != 7 {
		t.Errorf("sent %d, want what was read", got)
	}
	wantCQE(t, "read", a.send.one(), cqeRequest, 0, 0)
	wantCQE(t, "send", a.send.one(), cqeRequest, 1, 0)
}

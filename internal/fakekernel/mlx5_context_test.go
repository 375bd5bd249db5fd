//go:build linux

package fakekernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// TestMLX5ContextErrnos: mlx5_ib_alloc_ucontext.
func TestMLX5ContextErrnos(t *testing.T) {
	type req = abi.Mlx5IbAllocUcontextReqV2
	static := func(r *req) { r.LibCaps = 0 }
	for _, tt := range []struct {
		name string
		edit func(*req)
		len  int
		want unix.Errno
	}{
		{"good", func(*req) {}, 32, 0},
		{"up to the reserved part", func(*req) {}, 24, 0},
		{"longer", func(*req) {}, 40, 0},
		{"none", func(*req) {}, 0, unix.EINVAL},
		{"between the versions", func(*req) {}, 12, unix.EINVAL},
		{"flags", func(r *req) { r.Flags |= 2 }, 32, unix.EOPNOTSUPP},
		{"mask", func(r *req) { r.CompMask = 1 }, 32, unix.EOPNOTSUPP},
		{"reserved", func(r *req) { r.Reserved2 = 1 }, 32, unix.EOPNOTSUPP},
		{"all for one each", func(r *req) { r.NumLowLatencyBfregs = 16 }, 32, unix.EINVAL},
		{"none at all, dynamic", func(r *req) { r.TotalNumBfregs, r.NumLowLatencyBfregs = 0, 0 }, 32, 0},
		{"none at all", func(r *req) { static(r); r.TotalNumBfregs, r.NumLowLatencyBfregs = 0, 0 }, 32, unix.EINVAL},
		{"many, dynamic", func(r *req) { r.TotalNumBfregs = 1000 }, 32, 0},
		{"too many", func(r *req) { static(r); r.TotalNumBfregs = 514 }, 32, unix.ENOMEM},
		{"odd", func(r *req) { static(r); r.TotalNumBfregs = 5 }, 32, 0},
	} {
		k := mlx5Kernel(t, "", MLX5{})
		f := open(t, k, k.devices[0].node())
		in := contextIn()
		tt.edit(&in)
		var resp abi.Mlx5IbAllocUcontextResp
		raw := append(bytesOf(&in), make([]byte, 8)...)[:tt.len]
		want(t, tt.name, mlx5cmd(uapi.GetContext).Driver(raw, bytesOf(&resp)).Do(f), tt.want)
	}
}

// TestMLX5ContextAnswer: what the device says of itself, and how it depends on the options.
func TestMLX5ContextAnswer(t *testing.T) {
	base := abi.Mlx5IbAllocUcontextResp{
		QpTabSize: 1 << 18, BfRegSize: 512, CacheLineSize: 64, MaxSqDescSz: 1024, MaxRqDescSz: 512, MaxSendWqebb: 32768,
		MaxRecvWr: 32768, MaxSrqRecvWr: 32768, NumPorts: 1, CompMask: 0x21, ResponseLength: 72, CqeVersion: 1,
		CmdsSuppUhw: 3, EthMinInline: 1, LogUarSize: 12, NumUarsPerPage: 1,
	}
	type answer = abi.Mlx5IbAllocUcontextResp
	type req = abi.Mlx5IbAllocUcontextReqV2
	for _, tt := range []struct {
		name    string
		version string
		how     MLX5
		edit    func(*req)
		want    func(*answer)
	}{
		{"usual", "6.1", MLX5{}, nil, func(*answer) {}},
		{"5.10", "5.10", MLX5{}, nil, func(a *answer) { a.CompMask = 1 }},
		{"static", "6.1", MLX5{StaticUARs: true}, nil, func(a *answer) { a.TotBfregs, a.NumDynBfregs = 16, 1024 }},
		{"no dynamic ones asked", "6.1", MLX5{}, func(r *req) { r.LibCaps = 0 }, func(a *answer) { a.TotBfregs, a.NumDynBfregs = 16, 1024 }},
		{"old completions", "6.1", MLX5{CQEVersion0: true}, nil, func(a *answer) { a.CqeVersion = 0 }},
		{"old user", "6.1", MLX5{}, func(r *req) { r.MaxCqeVersion = 0 }, func(a *answer) { a.CqeVersion = 0 }},
		{"user of the future", "6.1", MLX5{}, func(r *req) { r.MaxCqeVersion = 2 }, func(*answer) {}},
		{"no BlueFlame", "6.1", MLX5{NoBlueFlame: true}, nil, func(a *answer) { a.BfRegSize = 0 }},
		{"large pages", "6.1", MLX5{PageSize: 65536}, nil, func(a *answer) { a.NumUarsPerPage, a.CompMask = 16, 0x20 }},
	} {
		k := mlx5Kernel(t, tt.version, tt.how)
		f := open(t, k, k.devices[0].node())
		in := contextIn()
		if tt.edit != nil {
			tt.edit(&in)
		}
		wants, got := base, answer{}
		tt.want(&wants)
		var support uint64
		must(t, mlx5cmd(uapi.GetContext).Out(abi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, bytesOf(&support)).
			Driver(bytesOf(&in), bytesOf(&got)).Do(f))
		if d := cmp.Diff(bytesOf(&wants), bytesOf(&got)); d != "" {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, wants)
		}
		if support != 1 {
			t.Errorf("%s: support %d, want 1", tt.name, support)
		}
	}
}

// TestMLX5ShortAnswer: as much of the answer as there is room for, and its length.
func TestMLX5ShortAnswer(t *testing.T) {
	k := mlx5Kernel(t, "", MLX5{})
	f := open(t, k, k.devices[0].node())
	in, out := contextIn(), make([]byte, 44)
	must(t, mlx5cmd(uapi.GetContext).Driver(bytesOf(&in), out[:40:40]).Do(f))
	if r := load[abi.Mlx5IbAllocUcontextResp](out); r.NumPorts != 1 || r.ResponseLength != 0 {
		t.Errorf("answer of 40 bytes: %+v", r)
	}
}

// TestMLX5RobustData: 7.2 says that it checks all input.
func TestMLX5RobustData(t *testing.T) {
	k := mlx5Kernel(t, "7.2", MLX5{})
	f := open(t, k, k.devices[0].node())
	in, out := contextIn(), abi.Mlx5IbAllocUcontextResp{}
	var support uint64
	must(t, mlx5cmd(uapi.GetContext).Out(abi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, bytesOf(&support)).
		Driver(bytesOf(&in), bytesOf(&out)).Do(f))
	if support != 3 {
		t.Errorf("support %d, want 3", support)
	}
}

// TestMLX5OldContext: the first version of the request has nothing but the numbers.
func TestMLX5OldContext(t *testing.T) {
	k := mlx5Kernel(t, "", MLX5{})
	f := open(t, k, k.devices[0].node())
	in, out := abi.Mlx5IbAllocUcontextReq{TotalNumBfregs: 16, NumLowLatencyBfregs: 4}, abi.Mlx5IbAllocUcontextResp{}
	must(t, mlx5cmd(uapi.GetContext).Driver(bytesOf(&in), bytesOf(&out)).Do(f))
	if c := f.(*verbsFile).mlx; out.TotBfregs != 16 || out.CqeVersion != 0 || c.chooseRegister() != 0 {
		t.Errorf("answer %+v, register %d", out, c.chooseRegister())
	}
}

// TestMLX5LongAnswer: what is beyond the answer is left alone, or cleared since 7.2.
func TestMLX5LongAnswer(t *testing.T) {
	for version, text := range map[string]string{"6.1": "19000000 eeeeeeee", "7.2": "19000000 00000000"} {
		d := openMLX5(t, mlx5Kernel(t, version, MLX5{}))
		var r abi.IbUverbsAllocPdResp
		out := []byte("\xee\xee\xee\xee\xee\xee\xee\xee")
		must(t, d.invoke(uapi.AllocPD, bytesOf(&abi.IbUverbsAllocPd{}), bytesOf(&r), nil, out))
		golden(t, version, out, text)
		err := d.invoke(uapi.AllocPD, bytesOf(&abi.IbUverbsAllocPd{}), bytesOf(&r), nil, nil)
		errno := unix.Errno(0)
		if version == "6.1" {
			errno = unix.EFAULT
		}
		want(t, version+": no room", err, errno)
	}
}

// TestMLX5Port: a link of Ethernet, and how long its tables are.
func TestMLX5Port(t *testing.T) {
	d := openMLX5(t, mlx5Kernel(t, "", MLX5{}))
	var r abi.IbUverbsQueryPortRespEx
	must(t, mlx5cmd(uapi.QueryPort).Const(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1).Out(abi.UVERBS_ATTR_QUERY_PORT_RESP, bytesOf(&r)).Do(d.f))
	if p := r.LegacyResp; p.MaxMsgSz != 1<<30 || p.PkeyTblLen != 1 || p.LinkLayer != 2 || p.MaxMtu != 5 || p.ActiveMtu != 3 || p.PortCapFlags != 0x4010000 {
		t.Errorf("port %+v", p)
	}
}

// TestMLX5NoDataCommands: the data path has no commands.
func TestMLX5NoDataCommands(t *testing.T) {
	d := openMLX5(t, mlx5Kernel(t, "", MLX5{}))
	for _, c := range []*uapi.WriteCmd{uapi.PostSend, uapi.ReqNotifyCQ} {
		want(t, c.Name, d.invoke(c, make([]byte, c.In), make([]byte, c.Out), nil, nil), unix.EOPNOTSUPP)
	}
}

// TestMLX5Probe: how libmlx5 finds out that there is INVOKE_WRITE.
func TestMLX5Probe(t *testing.T) {
	k := mlx5Kernel(t, "", MLX5{})
	f := open(t, k, k.devices[0].node())
	err := mlx5cmd(uapi.InvokeWrite).Const(abi.UVERBS_ATTR_WRITE_CMD, abi.IB_USER_VERBS_CMD_QUERY_DEVICE).Do(f)
	want(t, "probe", err, unix.ENOSPC)
}

// TestMLX5DeviceCommand: what libmlx5 asks the firmware when it opens a device.
func TestMLX5DeviceCommand(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags uint32
		in    string
		want  unix.Errno
	}{
		{"capabilities", 1, "\x01\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00", 0},
		{"another command", 1, "\x01\x01\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00", unix.EINVAL},
		{"without the right", 0, "\x01\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00", unix.EINVAL},
	} {
		k := mlx5Kernel(t, "", MLX5{})
		f := open(t, k, k.devices[0].node())
		in, out := contextIn(), abi.Mlx5IbAllocUcontextResp{}
		in.Flags = tt.flags
		must(t, mlx5cmd(uapi.GetContext).Driver(bytesOf(&in), bytesOf(&out)).Do(f))
		caps := make([]byte, 4112)
		caps[0], caps[4111] = 1, 1
		err := uapi.NewCommand(devxOther, abi.RDMA_DRIVER_MLX5).
			In(abi.MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, []byte(tt.in)).
			Out(abi.MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, caps).Do(f)
		want(t, tt.name, err, tt.want)
		if err == nil && (caps[0] != 0 || caps[4111] != 0) {
			t.Error("capabilities that are not there")
		}
	}
}

// TestMLX5Registers: the objects, their numbers and offsets, and what is refused.
func TestMLX5Registers(t *testing.T) {
	d := openMLX5(t, mlx5Kernel(t, "", MLX5{}))
	if d.nc.id != 0x20 || d.bf.id != 0x21 {
		t.Errorf("pages %#x and %#x, want 0x20 and 0x21", d.nc.id, d.bf.id)
	}
	var (
		offset     uint64
		length, id uint32
	)
	want(t, "type", allocUAR(2, &offset, &length, &id).Do(d.f), unix.EOPNOTSUPP)
	c := allocUAR(1, &offset, &length, &id)
	must(t, c.Do(d.f))
	if offset != 0x902000 || length != 4096 || id != 0x22 {
		t.Errorf("offset %#x, %d bytes, page %#x, want 0x902000, 4096, 0x22", offset, length, id)
	}
	for range 2 { // any number of times
		mem := d.mapPage(offset)
		mem[0]++
		if mem[0] == 0 {
			t.Error("the page is not the same")
		}
	}
	_, err := d.f.Map(int64(offset), 8192, uapi.ProtRead)
	want(t, "size", err, unix.EINVAL)
	destroy := func(handle uint32) error {
		return mlx5cmd(uapi.UARDestroy).Destroy(abi.MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, handle).Do(d.f)
	}
	must(t, destroy(d.nc.handle)) // what is mapped stays
	if u := d.k.devices[0].hw.pages[d.nc.id]; u == nil {
		t.Error("a page that is mapped is gone")
	}
	must(t, destroy(c.Result(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)))
	want(t, "handle", destroy(99), unix.ENOENT)
	want(t, "no BlueFlame", allocUAR(0, &offset, &length, &id).Do(openMLX5(t, mlx5Kernel(t, "", MLX5{NoBlueFlame: true})).f), unix.EOPNOTSUPP)
	for i := range 256 {
		must(t, allocUAR(1, &offset, &length, &id).Do(d.f))
		if i == 0 && offset != 0x903000 {
			t.Errorf("offset %#x of the next, want 0x903000", offset)
		}
	}
	if offset != 0x1_0902_000 {
		t.Errorf("offset %#x beyond 256 pages, want 0x10902000", offset)
	}
	must2(t)(d.f.Map(int64(offset), 4096, uapi.ProtWrite))
}

func must2(t *testing.T) func([]byte, error) {
	return func(_ []byte, err error) {
		t.Helper()
		must(t, err)
	}
}

// TestMLX5MapErrnos: mmap by command.
func TestMLX5MapErrnos(t *testing.T) {
	const page, rw, r = 4096, uapi.ProtRead | uapi.ProtWrite, uapi.ProtRead
	dynamic, static, late := MLX5{}, MLX5{StaticUARs: true}, MLX5{StaticUARs: true}
	for _, tt := range []struct {
		name   string
		how    MLX5
		off    int64
		length int
		prot   int
		want   unix.Errno
	}{
		{"static", static, 7 * page, page, rw, 0},
		{"static, beyond the last", static, 8 * page, page, rw, unix.EINVAL},
		{"static, two pages", static, 0, 2 * page, rw, unix.EINVAL},
		{"static, uncached", static, 0x307 * page, page, rw, 0},
		{"static, combining", static, 0x200 * page, page, rw, 0},
		{"static, where there are objects", dynamic, 0, page, rw, unix.EINVAL},
		{"combining without BlueFlame", MLX5{NoBlueFlame: true, StaticUARs: true}, 0x200 * page, page, rw, unix.EPERM},
		{"late", late, 0x600 * page, page, rw, 0},
		{"late, beyond", late, 0x2_06ff * page, page, rw, unix.EINVAL},
		{"late, beyond 256", late, 0x1_0600 * page, page, rw, 0},
		{"late, without BlueFlame", MLX5{NoBlueFlame: true}, 0x600 * page, page, rw, unix.EPERM},
		{"late, where there are objects", dynamic, 0x600 * page, page, rw, unix.EINVAL},
		{"contiguous pages", dynamic, 0x100 * page, page, rw, unix.ENOSYS},
		{"clock", dynamic, 0x500 * page, page, r, 0},
		{"clock to write", dynamic, 0x500 * page, page, rw, unix.EPERM},
		{"clock, size", dynamic, 0x500 * page, 2 * page, r, unix.EINVAL},
		{"clock's ratio", dynamic, 0x700 * page, page, r, unix.EOPNOTSUPP},
		{"clock's ratio to write", dynamic, 0x700 * page, page, rw, unix.EPERM},
		{"clock's ratio, size", dynamic, 0x700 * page, 1, r, unix.EINVAL},
		{"device memory", dynamic, 0x800 * page, page, rw, unix.EINVAL},
		{"no such entry", dynamic, 0x9ff * page, page, rw, unix.EINVAL},
		{"within a page", dynamic, 0x900*page + 64, page, rw, unix.EINVAL},
	} {
		k := mlx5Kernel(t, "", tt.how)
		d := openMLX5(t, k)
		before := k.Counts().Maps
		mem, err := d.f.Map(tt.off, tt.length, tt.prot)
		want(t, tt.name, err, tt.want)
		if err == nil {
			if k.Counts().Maps != before+1 {
				t.Errorf("%s: not counted", tt.name)
			}
			must(t, d.f.Unmap(mem))
		}
	}
}

// TestMLX5StaticRegisters: which register the kernel gives to a queue pair that names none.
func TestMLX5StaticRegisters(t *testing.T) {
	d := openMLX5(t, mlx5Kernel(t, "", MLX5{StaticUARs: true}))
	var got []uint32
	var last *mlxQP
	for range 18 {
		last = (&mlxQP{d: d, send: last.cqOr(d), mr: new(mlxMR)}).create()
		got = append(got, last.resp.BfregIndex)
	}
	wants := []uint32{24, 25, 28, 29, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 1, 4, 5}
	if d := cmp.Diff(wants, got); d != "" {
		t.Errorf("registers (-want +got):\n%s", d)
	}
	q := (&mlxQP{d: d, send: last.send, uidx: 1})
	q.defaults()
	q.buf, q.rec = pages(t, 4096), d.record()
	in := q.request()
	in.Flags, in.BfregIndex = abi.MLX5_QP_FLAG_BFREG_INDEX, 0
	want(t, "late register that is not mapped", mlx5CreateQP(q, q.cap(), bytesOf(&in), bytesOf(&q.resp)).Do(d.f), unix.EINVAL)
	d.mapPage(0x600 * pageSize)
	must(t, mlx5CreateQP(q, q.cap(), bytesOf(&in), bytesOf(&q.resp)).Do(d.f))
}

// cqOr is the queue of a queue pair that is there, or a new one.
func (q *mlxQP) cqOr(d *mlxDev) *mlxCQ {
	if q == nil {
		return d.cq(8)
	}
	return q.send
}

// TestMLX5OldRegisters: before there were objects for registers.
func TestMLX5OldRegisters(t *testing.T) {
	d := openMLX5(t, mlx5Kernel(t, "", MLX5{StaticUARs: true}))
	var (
		offset     uint64
		length, id uint32
	)
	want(t, "object", allocUAR(1, &offset, &length, &id).Do(d.f), unix.EPROTONOSUPPORT)
}

// TestMLX5LargePages: 16 pages of the device in one of the system.
func TestMLX5LargePages(t *testing.T) {
	k := mlx5Kernel(t, "", MLX5{PageSize: 65536})
	f := open(t, k, k.devices[0].node())
	in, out := contextIn(), abi.Mlx5IbAllocUcontextResp{}
	must(t, mlx5cmd(uapi.GetContext).Driver(bytesOf(&in), bytesOf(&out)).Do(f))
	var (
		offset     uint64
		length, id uint32
	)
	for i := range uint64(2) {
		must(t, allocUAR(0, &offset, &length, &id).Do(f))
		if offset != 0x900_0000+i<<16 || length != 65536 || uint64(id) != 0x20+16*i {
			t.Errorf("offset %#x, %d bytes, page %#x", offset, length, id)
		}
	}
	mem, err := f.Map(int64(offset), 65536, uapi.ProtRead|uapi.ProtWrite)
	must(t, err)
	u := k.devices[0].hw.pages[0x30]
	k.mu.Lock()
	arm, send := u.heard()
	mem[15*4096+0x900]++
	_, last := u.heard()
	mem[14*4096+0x24]++
	first, _ := u.heard()
	k.mu.Unlock()
	if arm || send || !last || !first {
		t.Errorf("heard %v %v before, %v and %v after", arm, send, last, first)
	}
	if f.(*verbsFile).mlx.uar(0x3f) != u || f.(*verbsFile).mlx.uar(0x40) != nil {
		t.Error("the numbers of the pages in a page")
	}
	must(t, f.Unmap(mem))
}

// TestMLX5PortSpeed: 7.2 has a method for it, which rxe does not serve.
func TestMLX5PortSpeed(t *testing.T) {
	for _, tt := range []struct {
		driver, port uint32
		want         unix.Errno
	}{
		{abi.RDMA_DRIVER_MLX5, 1, 0}, {abi.RDMA_DRIVER_MLX5, 2, unix.EINVAL}, {abi.RDMA_DRIVER_RXE, 1, unix.EOPNOTSUPP},
	} {
		k := start(t, Options{Kernel: "7.2", Devices: []Device{{Driver: tt.driver}}})
		f := open(t, k, k.devices[0].node())
		in := contextIn()
		must(t, uapi.NewCommand(uapi.GetContext, tt.driver).Driver(bytesOf(&in), make([]byte, 72)).Do(f))
		var speed uint64
		err := uapi.NewCommand(uapi.QueryPortSpeed, tt.driver).Const(abi.UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM, uint64(tt.port)).
			Out(abi.UVERBS_ATTR_QUERY_PORT_SPEED_RESP, bytesOf(&speed)).Do(f)
		want(t, "speed", err, tt.want)
		if err == nil && speed != 1000 {
			t.Errorf("speed %d, want 1000", speed)
		}
	}
}

// TestMLX5OtherDrivers: what is mlx5's own is refused by others.
func TestMLX5OtherDrivers(t *testing.T) {
	for _, driver := range []uint32{abi.RDMA_DRIVER_RXE, abi.RDMA_DRIVER_SIW} {
		k := start(t, Options{Devices: []Device{{Driver: driver}}})
		f := open(t, k, k.devices[0].node())
		must(t, uapi.NewCommand(uapi.GetContext, driver).Driver(nil, make([]byte, 16)).Do(f))
		var (
			offset     uint64
			length, id uint32
		)
		c := uapi.NewCommand(uapi.UARAlloc, driver).New(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE).
			Const(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, 0).
			Out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, bytesOf(&offset)).
			Out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, bytesOf(&length)).
			Out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, bytesOf(&id))
		want(t, "registers", c.Do(f), unix.EPROTONOSUPPORT)
		want(t, "device command", uapi.NewCommand(devxOther, driver).
			In(abi.MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, make([]byte, 16)).
			Out(abi.MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, make([]byte, 16)).Do(f), unix.EPROTONOSUPPORT)
		var told uint32
		create := uapi.NewCommand(uapi.CQCreate, driver).
			New(abi.UVERBS_ATTR_CREATE_CQ_HANDLE).
			In32(abi.UVERBS_ATTR_CREATE_CQ_CQE, 4).
			In64(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 0).
			In32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0).
			Out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, bytesOf(&told)).
			In32(abi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX, 0).Driver(nil, make([]byte, 64))
		want(t, "attribute of a completion queue", create.Do(f), unix.EPROTONOSUPPORT)
	}
}

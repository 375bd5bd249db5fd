//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// mlx5Context is what the driver keeps of a user's context.
type mlx5Context struct {
	f       *verbsFile
	dynamic bool // the user makes his registers one by one
	devx    bool
	version uint8 // of completions

	static  []*mlx5UAR          // by index
	late    map[uint32]*mlx5UAR // made by mmap, by index
	numLate uint32
	entries map[uint32]*mlx5UAR // mmap entries of UAR objects, by page offset
	total   uint32              // registers in the static pages
	low     uint32              // of these, for one queue pair each
	users   []uint32            // queue pairs of each register, where the kernel chooses
	simple  bool                // it does not choose: an old request
	dbPages map[uint64]*mlx5Pin // pages of doorbell records
	clock   *sharedPage
}

// Bounds of the registers: include/linux/mlx5/driver.h.
const (
	mlx5MaxStatic = 512
	mlx5Late      = 1024
)

// newContext: mlx5_ib_alloc_ucontext.
func (mlx5Driver) newContext(f *verbsFile, u *udata) error {
	req, simple, err := loadContext(u.in)
	if err != nil {
		return err
	}
	switch {
	case req.Flags&^abi.MLX5_IB_ALLOC_UCTX_DEVX != 0,
		req.CompMask != 0 || req.Reserved0 != 0 || req.Reserved1 != 0 || req.Reserved2 != 0:
		return unix.EOPNOTSUPP
	}
	req.TotalNumBfregs = alignTo(req.TotalNumBfregs, 2)
	if req.NumLowLatencyBfregs > req.TotalNumBfregs-1 {
		return unix.EINVAL
	}
	c := &mlx5Context{
		f: f, simple: simple, devx: req.Flags&abi.MLX5_IB_ALLOC_UCTX_DEVX != 0,
		dynamic: req.LibCaps&abi.MLX5_LIB_CAP_DYN_UAR != 0 && !f.dev.MLX5.StaticUARs,
		late:    make(map[uint32]*mlx5UAR), entries: make(map[uint32]*mlx5UAR), dbPages: make(map[uint64]*mlx5Pin),
	}
	if !f.dev.MLX5.CQEVersion0 {
		c.version = min(req.MaxCqeVersion, 1)
	}
	if !c.dynamic {
		if err := c.allocStatic(&req); err != nil {
			c.end()
			return err
		}
	}
	if f.mlx != nil { // of a request whose answer could not be written
		f.mlx.end()
	}
	f.mlx = c
	answer := c.answer(u.room)
	u.out = bytesOf(&answer)[:answer.ResponseLength]
	return nil
}

// loadContext reads one of the two versions of the request.
func loadContext(in []byte) (req abi.Mlx5IbAllocUcontextReqV2, simple bool, err error) {
	switch {
	case len(in) == len(bytesOf(&abi.Mlx5IbAllocUcontextReq{})):
		simple = true
	case len(in) < 16:
		return req, false, unix.EINVAL
	}
	return load[abi.Mlx5IbAllocUcontextReqV2](in), simple, nil
}

// alignTo rounds up to a multiple of a power of two. It overflows as the kernel's does.
func alignTo(n, to uint32) uint32 { return (n + to - 1) &^ (to - 1) }

// allocStatic: calc_total_bfregs and allocate_uars.
func (c *mlx5Context) allocStatic(req *abi.Mlx5IbAllocUcontextReqV2) error {
	d := &c.f.dev.hw
	switch {
	case req.TotalNumBfregs == 0:
		return unix.EINVAL
	case req.TotalNumBfregs > mlx5MaxStatic:
		return unix.ENOMEM
	}
	perPage := 2 * c.uarsIn(req)
	c.total, c.low = alignTo(req.TotalNumBfregs, perPage), req.NumLowLatencyBfregs
	if c.low > c.total-1 {
		return unix.EINVAL
	}
	c.numLate = mlx5Late
	if perPage == 2 && d.page > 4096 {
		c.numLate = mlx5Late / 2
	}
	c.users = make([]uint32, c.total)
	for i := range c.total / perPage {
		u, err := c.newUAR(uint64(i) * d.page)
		if err != nil {
			return err
		}
		c.static = append(c.static, u)
	}
	return nil
}

// uarsIn is how many pages of the device the user finds in one of the system's.
func (c *mlx5Context) uarsIn(req *abi.Mlx5IbAllocUcontextReqV2) uint32 {
	if req.LibCaps&abi.MLX5_LIB_CAP_4K_UAR != 0 {
		return c.f.dev.hw.uarsPerPage()
	}
	return 1
}

// answer: set_ucontext_resp.
func (c *mlx5Context) answer(room int) abi.Mlx5IbAllocUcontextResp {
	d := c.f.dev
	r := abi.Mlx5IbAllocUcontextResp{
		QpTabSize: mlx5MaxQP, BfRegSize: mlx5BlueFlame, TotBfregs: c.total, CacheLineSize: 64,
		MaxSqDescSz: mlx5MaxSQDesc, MaxRqDescSz: mlx5MaxRQDesc, MaxSendWqebb: mlx5MaxWR, MaxRecvWr: mlx5MaxWR,
		MaxSrqRecvWr: mlx5MaxSRQWR, NumPorts: 1, CqeVersion: c.version,
		CmdsSuppUhw:  abi.MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | abi.MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
		EthMinInline: abi.MLX5_USER_INLINE_MODE_NONE, LogUarSize: 12, NumUarsPerPage: d.hw.uarsPerPage(),
		NumDynBfregs: c.numLate,
	}
	r.ResponseLength = uint32(min(room, len(bytesOf(&r))))
	if d.MLX5.NoBlueFlame {
		r.BfRegSize = 0
	}
	if d.hw.page <= 4096 {
		r.CompMask |= abi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET
	}
	if d.version >= v601 {
		r.CompMask |= abi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_MKEY_UPDATE_TAG
	}
	return r
}

// end gives the registers up. Mappings live on.
func (c *mlx5Context) end() {
	for _, u := range c.static {
		u.put()
	}
	for _, u := range c.late {
		u.put()
	}
	if c.clock != nil {
		c.clock.put()
	}
	c.static, c.late, c.clock = nil, nil, nil
}

// chooseRegister picks the register of a queue pair that named none: alloc_bfreg. The last
// ones serve one queue pair each, the first has no BlueFlame, those between are shared.
func (c *mlx5Context) chooseRegister() uint32 {
	if c.simple {
		return 0
	}
	shared := max(0, int(c.total)-int(c.low)-1)
	for i := shared + 1; i < int(c.total); i++ {
		if c.users[i] == 0 {
			return uint32(i)
		}
	}
	best := 0
	for i := 1; i <= shared; i++ {
		if best == 0 || c.users[i] < c.users[best] {
			best = i
		}
	}
	return uint32(best)
}

// told is the number of a register as the user counts: four in each page, of which two are
// for the kernel.
func told(register uint32) uint32 { return register/2*4 + register%2 }

//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// mlx5Driver is hw/mlx5 with a device behind it. Queues, records of doorbells and buffers
// are memory of the user, whose address he tells; doorbells are stores into pages of
// registers that he maps, and which a goroutine of the kernel watches. See [Device.MLX5].
//
// The checks are those of the kernel, in its order. Where the kernel leaves one to the
// firmware the model is strict.
type mlx5Driver struct{}

// MLX5 is how an mlx5 device differs from one that has everything.
type MLX5 struct {
	// StaticUARs: registers are handed out with the context and mapped by command, as
	// before Linux 5.7. There are no objects for them.
	StaticUARs bool
	// CQEVersion0: completions name a queue pair by its number, not by the user's index.
	CQEVersion0 bool
	// NoBlueFlame: the CPU cannot combine writes to registers.
	NoBlueFlame bool
	// NoExec: doorbells are not heard. Nothing but the program runs: for benchmarks.
	NoExec bool
	// PageSize is the system's page as the device's answers tell; zero is the real one. It
	// is a multiple of the real one.
	PageSize int
}

// Limits of the device: about those of a ConnectX-5.
const (
	mlx5MaxQP      = 1 << 18
	mlx5MaxWR      = 1 << 15 // in 64-byte blocks of a send queue, in requests of a receive queue
	mlx5MaxSQDesc  = 1024
	mlx5MaxRQDesc  = 512
	mlx5MaxSRQWR   = 1 << 15
	mlx5MaxCQE     = 1 << 22
	mlx5MaxRDAtom  = 16
	mlx5MaxSGE     = 30
	mlx5MaxRecvSGE = mlx5MaxRQDesc / 16
	mlx5MaxMessage = 1 << 30
	mlx5GIDTable   = 255
	mlx5BlueFlame  = 512 // bytes of a register, in two halves

	mlx5FirstCQN  = 0x40
	mlx5FirstSRQN = 0x10
	mlx5FirstPDN  = 0x18
	mlx5FirstPage = 0x20
)

// driverObjects is where the numbers of a driver's own objects and attributes begin.
const driverObjects = 0x1000

// robust tells whether the driver clears what it does not fill of an answer, and refuses
// input that it does not know.
func (d *device) robust() bool { return d.Driver == abi.RDMA_DRIVER_MLX5 && d.version >= v702 }

func (mlx5Driver) link() link {
	return link{name: "mlx5_", abi: abi.MLX5_IB_UVERBS_ABI_VERSION, nodeType: abi.RDMA_NODE_IB_CA, protocol: "roce"}
}

// has: work queues, flows, XRC domains and most of the driver's own objects are not here.
func (mlx5Driver) has(_ version, object, _ uint16) bool {
	switch object {
	case abi.UVERBS_OBJECT_WQ, abi.UVERBS_OBJECT_FLOW, abi.UVERBS_OBJECT_XRCD:
		return false
	}
	return true
}

// does: the data path has no commands.
func (mlx5Driver) does(_ version, cmd uint32) bool {
	switch cmd {
	case abi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, abi.IB_USER_VERBS_CMD_POST_SEND, abi.IB_USER_VERBS_CMD_OPEN_XRCD,
		uapi.ExCmd | abi.IB_USER_VERBS_EX_CMD_CREATE_FLOW, uapi.ExCmd | abi.IB_USER_VERBS_EX_CMD_MODIFY_CQ:
		return false
	}
	return true
}

// method is one of the driver's own objects.
func (mlx5Driver) method(f *verbsFile, r *request) error {
	objects := !f.dev.MLX5.StaticUARs
	switch {
	case r.m == uapi.UARAlloc && objects:
		return f.allocUAR(r)
	case r.m == uapi.UARDestroy && objects:
		return f.destroy(r, abi.MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE)
	case r.m == devxOther:
		return f.devxOther(r)
	}
	return unix.EPROTONOSUPPORT
}

// newPD: before 7.2 the driver wrote its answer whether there was room or not.
func (mlx5Driver) newPD(f *verbsFile, p *pd, u *udata) error {
	if u.room == 0 && !f.dev.robust() {
		return unix.EFAULT
	}
	f.dev.hw.lastPDN++
	u.respond(f.dev, bytesOf(&abi.Mlx5IbAllocPdResp{Pdn: f.dev.hw.lastPDN}))
	return nil
}

// mayPost and execute: there is no command that posts.
func (mlx5Driver) mayPost(*qp) error { return unix.EOPNOTSUPP }

// mlx5Device is what the driver keeps of a device.
type mlx5Device struct {
	page    uint64              // the system's page size
	pages   map[uint32]*mlx5UAR // registers, by the first number of each page
	lastCQN uint32
	lastPDN uint32
	lastSRQ uint32
}

func (d *mlx5Device) init(c *Device) {
	d.page = pageSize
	if c.MLX5.PageSize > 0 {
		d.page = uint64(c.MLX5.PageSize)
	}
	d.pages = make(map[uint32]*mlx5UAR)
	d.lastCQN, d.lastSRQ, d.lastPDN = mlx5FirstCQN-1, mlx5FirstSRQN-1, mlx5FirstPDN-1
}

// uarsPerPage: a register page of the device has 4096 bytes.
func (d *mlx5Device) uarsPerPage() uint32 { return uint32(d.page / 4096) }

// respond is the answer of mlx5, which is as long as there is room for; newer kernels
// clear the rest of the room.
func (u *udata) respond(d *device, b []byte) {
	if d.robust() && u.room > len(b) {
		b = append(b[:len(b):len(b)], make([]byte, u.room-len(b))...)
	}
	u.answer(b)
}

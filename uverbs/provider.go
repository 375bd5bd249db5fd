package uverbs

import (
	"strings"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/mlx5"
	"github.com/pureverbs/rdma/internal/provider/siw"
)

// providerInfo names a driver that this package can drive, and the versions of its kernel
// interface.
type providerInfo struct {
	driver         uint32
	name           string
	minABI, maxABI uint32
	ops            uint32 // set of operations that its queue pairs can do
	inlineOps      uint32 // set of operations that take inline data
	readSGE        uint32 // most pieces of an RDMA READ, 0 for as many as of a send
	contextOut     int    // bytes of its answer when a context is made
	pdOut          int    // and a protection domain
}

// providers is the one static table: a new device is one line here and one package.
var providers = [...]providerInfo{
	{driver: abi.RDMA_DRIVER_RXE, name: "rxe", minABI: 1, maxABI: 2, ops: provider.AllOps, inlineOps: provider.DataOps},
	{
		driver: abi.RDMA_DRIVER_SIW, name: "siw", minABI: 1, maxABI: 1, ops: siw.Ops, inlineOps: siw.InlineOps,
		readSGE: siw.MaxReadSGE, contextOut: siw.ContextOut,
	},
	{
		driver: abi.RDMA_DRIVER_MLX5, name: mlx5.DriverName, minABI: mlx5.MinABI, maxABI: mlx5.MaxABI, ops: mlx5.Ops,
		inlineOps: mlx5.InlineOps, readSGE: mlx5.MaxReadSGE, pdOut: mlx5.PDOut,
	},
}

func findProvider(driver uint32) *providerInfo {
	for i := range providers {
		if providers[i].driver == driver {
			return &providers[i]
		}
	}
	return nil
}

// DriverInfo is a kernel driver that this package drives: see [Drivers].
type DriverInfo struct {
	Name           string // as [Device.Driver] gives it
	MinABI, MaxABI uint32 // versions of the driver's interface, see [Device.ABI]
}

// Drivers lists the kernel drivers that this package drives. A device of another one, or
// with a version of its interface outside of the range, is listed and cannot be opened.
func Drivers() []DriverInfo {
	list := make([]DriverInfo, len(providers))
	for i, p := range providers {
		list[i] = DriverInfo{Name: p.name, MinABI: p.minABI, MaxABI: p.maxABI}
	}
	return list
}

func providerNames() string {
	names := make([]string, len(providers))
	for i := range providers {
		names[i] = providers[i].name
	}
	return strings.Join(names, ", ")
}

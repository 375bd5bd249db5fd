package uverbs_test

import (
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/internal/verbstest"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// fake returns a kernel and a way to its first device.
func fake(t testing.TB, o fakekernel.Options) (*fakekernel.Kernel, func(testing.TB) *uverbs.Device) {
	t.Helper()
	o.Root = t.TempDir()
	k := fakekernel.New(o)
	t.Cleanup(func() { k.Close() })
	return k, func(t testing.TB) *uverbs.Device {
		t.Helper()
		devs, err := uverbs.Devices(uverbs.WithSystem(k.System()))
		if err != nil || len(devs) == 0 {
			t.Fatalf("%d devices, %v", len(devs), err)
		}
		return devs[0]
	}
}

// suite is the suite of the verbs on the first device of a fake kernel.
func suite(t testing.TB, o fakekernel.Options) *verbstest.Suite {
	t.Helper()
	_, s := suiteOn(t, o)
	return s
}

func suiteOn(t testing.TB, o fakekernel.Options) (*fakekernel.Kernel, *verbstest.Suite) {
	t.Helper()
	if o.Kernel == "" {
		o.Kernel = "6.1"
	}
	k, device := fake(t, o)
	return k, &verbstest.Suite{
		Device: device, Kernel: testutil.MustKernel(o.Kernel), Addr: fakekernel.DefaultAddrs(0)[1],
		CM: []rdmacm.Option{rdmacm.WithSystem(k.System())}, Short: true,
	}
}

var (
	rxe = []fakekernel.Device{{Driver: abi.RDMA_DRIVER_RXE}}
	siw = []fakekernel.Device{{Driver: abi.RDMA_DRIVER_SIW}}

	mlx5 = mlx5With(fakekernel.MLX5{})
)

func mlx5With(m fakekernel.MLX5) []fakekernel.Device {
	return []fakekernel.Device{{Driver: abi.RDMA_DRIVER_MLX5, MLX5: m}}
}

// TestVerbs runs the suite of the verbs on the fake kernel: as each driver in each kernel,
// and in the orders in which kernels carry out work and report it.
func TestVerbs(t *testing.T) {
	for name, o := range map[string]fakekernel.Options{
		"rxe 5.10": {Devices: rxe, Kernel: "5.10"},
		"rxe 6.1":  {Devices: rxe, Kernel: "6.1"},
		"rxe 6.12": {Devices: rxe, Kernel: "6.12", Deferred: true},
		"rxe 7.2":  {Devices: rxe, Kernel: "7.2", Deferred: true},
		"siw 6.1":  {Devices: siw, Kernel: "6.1"},
		"siw 7.2":  {Devices: siw, Kernel: "7.2"},

		"mlx5 5.10":          {Devices: mlx5, Kernel: "5.10"},
		"mlx5 6.1":           {Devices: mlx5, Kernel: "6.1"},
		"mlx5 7.2":           {Devices: mlx5, Kernel: "7.2", Deferred: true},
		"mlx5 static UARs":   {Devices: mlx5With(fakekernel.MLX5{StaticUARs: true}), Kernel: "5.10"},
		"mlx5 CQE version 0": {Devices: mlx5With(fakekernel.MLX5{CQEVersion0: true})},
		"mlx5 no BlueFlame":  {Devices: mlx5With(fakekernel.MLX5{NoBlueFlame: true})},

		"RW16 answers first": {AckDelay: time.Millisecond},
		"RW16 sends first":   {AckFirst: true},
		"write() refused":    {DenyWrite: true},
	} {
		t.Run(name, func(t *testing.T) {
			suite(t, o).Run(t)
		})
	}
}

package discover

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/pureverbs/rdma/abi"
)

// DriverName returns the usual name of a driver id (enum rdma_driver_id): "rxe",
// "mlx5". An id that is not known gives "driver 99", 0 gives "unknown".
func DriverName(id uint32) string {
	if id == abi.RDMA_DRIVER_IRDMA {
		return "irdma" // shares its number with i40iw, which it replaced
	}
	name, ok := strings.CutPrefix(abi.RdmaDriverId(id).String(), "RDMA_DRIVER_")
	if !ok {
		return "driver " + utoa(id)
	}
	return strings.ToLower(name)
}

// sysfsDriver tells the driver of a device without netlink's word, which some
// drivers withhold (hns, mthca). The software drivers show themselves in the
// node description, hardware in the kernel driver that is bound to the device
// below. Last comes rdma-core's old rule, the name.
func (s *System) sysfsDriver(name string) uint32 {
	dir := s.path("sys/class/infiniband", name)
	desc, _ := readValue(filepath.Join(dir, "node_desc"))
	switch {
	case desc == "rxe":
		return abi.RDMA_DRIVER_RXE
	case strings.HasPrefix(desc, "Software iWARP"):
		return abi.RDMA_DRIVER_SIW
	}
	if target, err := os.Readlink(filepath.Join(dir, "device/driver")); err == nil {
		return kernelDriver(filepath.Base(target))
	}
	switch {
	case strings.HasPrefix(name, "rxe"):
		return abi.RDMA_DRIVER_RXE
	case strings.HasPrefix(name, "siw"):
		return abi.RDMA_DRIVER_SIW
	}
	return abi.RDMA_DRIVER_UNKNOWN
}

// kernelDriver maps the name of a bus driver to the RDMA driver that sits on it.
func kernelDriver(name string) uint32 {
	switch name {
	case "mlx5_core", "mlx5_core.sf":
		return abi.RDMA_DRIVER_MLX5
	case "mlx4_core":
		return abi.RDMA_DRIVER_MLX4
	case "ib_mthca":
		return abi.RDMA_DRIVER_MTHCA
	case "cxgb4":
		return abi.RDMA_DRIVER_CXGB4
	case "bnxt_en":
		return abi.RDMA_DRIVER_BNXT_RE
	case "ice", "i40e", "idpf":
		return abi.RDMA_DRIVER_IRDMA
	case "vmw_pvrdma":
		return abi.RDMA_DRIVER_VMW_PVRDMA
	case "qede":
		return abi.RDMA_DRIVER_QEDR
	case "hns3", "hns_roce_hw_v2":
		return abi.RDMA_DRIVER_HNS
	case "efa":
		return abi.RDMA_DRIVER_EFA
	case "erdma":
		return abi.RDMA_DRIVER_ERDMA
	case "mana":
		return abi.RDMA_DRIVER_MANA
	case "ionic":
		return abi.RDMA_DRIVER_IONIC
	}
	return abi.RDMA_DRIVER_UNKNOWN
}

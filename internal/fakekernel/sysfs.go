//go:build linux

package fakekernel

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/pureverbs/rdma/abi"
)

// SysFS is what the library, and libibverbs, read below /sys of the devices that New would make:
// the text of each file, by its path from "sys" on. Its links to other places are the text of
// what ends in "@": "driver@".
func SysFS(opts Options) map[string]string {
	set(&opts.Kernel, "6.1")
	k := &Kernel{opts: opts, version: parseVersion(opts.Kernel)}
	k.addDevices()
	tree := make(map[string]string)
	sysTree(&opts, k.devices, func(path, text string) { tree[path] = text })
	return tree
}

// writeTree writes what the library reads of /sys and /proc under root. It is for tests,
// where a directory that cannot be written is a broken test: so it panics.
func writeTree(opts *Options, devices []*device) {
	put := func(path, text string) {
		if err := WriteFile(opts.Root, path, text); err != nil {
			panic(err)
		}
	}
	sysTree(opts, devices, put)
	procTree(devices, put)
}

// WriteFile puts one file of a tree under a root.
func WriteFile(root, path, text string) error {
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if link, ok := strings.CutSuffix(path, "@"); ok {
		return os.Symlink(text, link)
	}
	return os.WriteFile(path, []byte(text+"\n"), 0o644)
}

func sysTree(opts *Options, devices []*device, put func(path, text string)) {
	put("sys/class/infiniband_verbs/abi_version", "6")
	if !opts.NoCM {
		put("sys/class/misc/rdma_cm/dev", cmDev.String())
		put("sys/class/misc/rdma_cm/abi_version", "4")
	}
	for _, d := range devices {
		putDevice(d, put)
	}
}

func procTree(devices []*device, put func(path, text string)) {
	var netDev, inet6 string
	for _, d := range devices {
		if d.Foreign {
			continue
		}
		netDev += "\n" + d.NetDev + ": 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
		for _, a := range d.Addrs {
			if a.Is6() {
				inet6 += fmt.Sprintf("%s %02x 40 00 80 %s\n", hexAddr(a), d.IfIndex, d.NetDev)
			}
		}
	}
	put("proc/thread-self/net/dev", "Inter-| Receive\n face |bytes"+netDev)
	put("proc/thread-self/net/if_inet6", inet6)
}

func putDevice(d *device, put func(path, text string)) {
	verbs := "sys/class/infiniband_verbs/" + d.sysName()
	put(verbs+"/ibdev", d.Name)
	put(verbs+"/dev", d.dev().String())
	put(verbs+"/abi_version", fmt.Sprint(d.ABI))
	base := "sys/class/infiniband/" + d.Name
	switch d.Driver {
	case abi.RDMA_DRIVER_SIW:
		put(base+"/node_type", "4: RNIC")
		put(base+"/node_desc", "Software iWARP stack")
	case abi.RDMA_DRIVER_MLX5:
		putMLX5(base, put)
	default:
		put(base+"/node_type", "1: CA")
		put(base+"/node_desc", "rxe")
	}
	g := d.GUID
	guid := fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff)
	put(base+"/node_guid", guid)
	put(base+"/sys_image_guid", guid)
	putPort(d, base+"/ports/1", put)
}

// putMLX5 is what a PCI device shows: a ConnectX-5.
func putMLX5(base string, put func(path, text string)) {
	put(base+"/node_type", "1: CA")
	put(base+"/node_desc", "simulated")
	put(base+"/fw_ver", "16.35.4030")
	put(base+"/hca_type", "MT4119")
	put(base+"/hw_rev", "0")
	put(base+"/board_id", "MT_0000000000")
	put(base+"/device/vendor", "0x15b3")
	put(base+"/device/device", "0x1017")
	put(base+"/device/modalias", "pci:v000015B3d00001017sv000015B3sd00000007bc02sc00i00")
	put(base+"/device/driver@", "../../../../bus/pci/drivers/mlx5_core")
}

func putPort(d *device, port string, put func(path, text string)) {
	put(port+"/link_layer", "Ethernet")
	put(port+"/state", map[bool]string{false: "4: ACTIVE", true: "1: DOWN"}[d.Down])
	if !d.iwarp() {
		put(port+"/pkeys/0", "0xffff")
	}
	for i := range d.gids {
		put(fmt.Sprintf("%s/gids/%d", port, i), colons([16]byte(bytesOf(&d.gids[i].Gid))))
		if !d.iwarp() { // else the kernel refuses to read it
			put(fmt.Sprintf("%s/gid_attrs/ndevs/%d", port, i), d.NetDev)
		}
		put(fmt.Sprintf("%s/gid_attrs/types/%d", port, i), []string{"IB/RoCE v1", "IB/RoCE v1", "RoCE v2"}[d.gids[i].GidType])
	}
}

func hexAddr(a netip.Addr) string {
	raw := a.As16()
	return fmt.Sprintf("%x", raw[:])
}

func colons(gid [16]byte) (text string) {
	for i := 0; i < 16; i += 2 {
		if i > 0 {
			text += ":"
		}
		text += fmt.Sprintf("%x", gid[i:i+2])
	}
	return text
}

//go:build linux

package fakekernel

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
)

// writeTree writes what the library reads of /sys and /proc under root. It is for tests,
// where a directory that cannot be written is a broken test: so it panics.
func writeTree(root string, devices []*device) {
	put := func(path, text string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			panic(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			panic(err)
		}
	}
	put("sys/class/infiniband_verbs/abi_version", "6")
	put("sys/class/misc/rdma_cm/dev", cmDev.String())
	put("sys/class/misc/rdma_cm/abi_version", "4")
	var netDev, inet6 string
	for _, d := range devices {
		putDevice(d, put)
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
	if d.iwarp() {
		put(base+"/node_type", "4: RNIC")
		put(base+"/node_desc", "Software iWARP stack")
	} else {
		put(base+"/node_type", "1: CA")
		put(base+"/node_desc", "rxe")
		put(base+"/ports/1/pkeys/0", "0xffff")
	}
	g := d.GUID
	put(base+"/node_guid", fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff))
	port := base + "/ports/1"
	put(port+"/link_layer", "Ethernet")
	put(port+"/state", map[bool]string{false: "4: ACTIVE", true: "1: DOWN"}[d.Down])
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

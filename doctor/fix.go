package doctor

import (
	"fmt"
	"slices"
)

// The places where a fix is made.
const (
	here       = "here"
	hereRoot   = "here, as root"
	hostRoot   = "on the host, as root"
	atStart    = "when the container is started"
	inManifest = "in the pod's manifest"
)

// asRoot is where a command goes that changes the kernel: out of a container, if this is one.
func (f *facts) asRoot() string {
	if f.container == onHost {
		return hereRoot
	}
	return hostRoot
}

// starting are fixes by the container's runtime: flags of docker and podman, or what a
// manifest has to say. On a host there are none.
func (f *facts) starting(docker, manifest string) []Fix {
	switch f.container {
	case inContainer:
		return []Fix{{atStart, "docker run " + docker + " IMAGE"}}
	case inKubernetes:
		return []Fix{{inManifest, manifest}}
	}
	return nil
}

// softDevice makes an RDMA device in software, with iproute2 or without.
func (e *examination) softDevice() []Fix {
	return e.softDeviceOn(e.someInterface())
}

func (e *examination) softDeviceOn(netdev string) []Fix {
	name := "rxe0"
	for i := 1; slices.ContainsFunc(e.devices, func(p *patient) bool { return p.name() == name }); i++ {
		name = fmt.Sprintf("rxe%d", i)
	}
	load := ""
	if m := e.facts.modules; m != nil && !m["rdma_rxe"] { // not every system loads it by itself
		load = "modprobe rdma_rxe && "
	}
	add := fmt.Sprintf("link add %s type rxe netdev %s", name, netdev)
	return []Fix{{e.facts.asRoot(), load + "rdma " + add}, {e.facts.asRoot(), load + "rdma-ping " + add}}
}

// someInterface is the one that leads to the address, or the first that could carry a device.
func (e *examination) someInterface() string {
	if e.way.netdev != "" && !e.way.loopback {
		return e.way.netdev
	}
	for _, i := range e.interfaces {
		if i.Up && len(i.Addrs) > 0 && !i.Addrs[0].Addr().IsLoopback() {
			return i.Name
		}
	}
	return "INTERFACE"
}

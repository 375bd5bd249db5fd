package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/uverbs"
)

// patient is a device under examination.
type patient struct {
	dev      *uverbs.Device
	netdevs  []string // that lead to it from here
	findings []Finding
	ctx      *uverbs.Context // nil if it cannot be opened
	gids     []uverbs.GIDEntry
}

func (p *patient) name() string   { return p.dev.Name() }
func (p *patient) object() string { return "device " + p.dev.Name() }

func (p *patient) find(severity Severity, code Code, what string, fixes ...Fix) {
	p.findings = append(p.findings, Finding{
		Severity: severity, Code: code, Object: p.object(), What: what, Why: code.why(), Fixes: fixes,
	})
}

// has tells whether an interface leads to the device.
func (p *patient) has(netdev string) bool { return slices.Contains(p.netdevs, netdev) }

// progress is how far the device comes on the way to working.
func (p *patient) progress() int {
	far := len(order)
	for _, f := range p.findings {
		if f.Severity == Error {
			far = min(far, f.Code.rank())
		}
	}
	return far
}

// findDevices lists the devices.
func (e *examination) findDevices() error {
	devs, err := uverbs.Devices(e.verbsOptions())
	switch {
	case errors.Is(err, discover.ErrNoModule) || errors.Is(err, discover.ErrNoPermission):
		e.check(false, "devices", "", reason(err))
		e.blind = true
		if !e.failed() { // else netlink is refused, and nothing is known of modules
			e.find(e.noRDMA())
		}
		return nil
	case err != nil:
		return err
	case len(devs) == 0:
		e.check(false, "devices", "", "none")
		e.find(e.noDevice())
		return nil
	}
	for _, d := range devs {
		e.devices = append(e.devices, &patient{dev: d, netdevs: append(e.stacked(d), d.NetDevs()...)})
	}
	return nil
}

// stacked are the IPoIB interfaces of an InfiniBand device, which netlink does not name.
func (e *examination) stacked(d *uverbs.Device) (names []string) {
	entries, _ := os.ReadDir(filepath.Join(e.System.Root, "/sys/class/infiniband", d.Name(), "device/net"))
	for _, entry := range entries {
		if d.Protocol() == "ib" || d.Protocol() == "opa" {
			names = append(names, entry.Name())
		}
	}
	return names
}

func (e *examination) noDevice() Finding {
	f := Finding{Severity: Error, Code: NoDevice, Object: "devices", Why: NoDevice.why(), Fixes: e.softDevice()}
	f.What = "the kernel's RDMA support is there but knows no device; an adapter's own driver (mlx5_ib, irdma, bnxt_re, ...) would bring one"
	if e.exclusive {
		f.Code, f.Why = ForeignNamespace, ForeignNamespace.why()
		f.What = "no RDMA device is in this network namespace, and in exclusive mode others cannot be seen"
		f.Fixes = append([]Fix{{e.facts.asRoot(), "rdma dev set DEVICE netns NAMESPACE"}, {e.facts.asRoot(), "rdma system set netns shared"}}, f.Fixes...)
	}
	return f
}

// examine goes from the driver to the GIDs, and ends where something is broken.
func (e *examination) examine(p *patient) {
	d := p.dev
	ok := e.examineDriver(p) && e.examineNode(p) && e.open(p)
	detail := fmt.Sprintf("driver %s", d.Driver())
	if d.ABI() != 0 {
		detail += fmt.Sprintf(", ABI version %d", d.ABI())
	}
	if r := abiRange(d.Driver()); r != "" {
		detail += " (" + r + " is spoken here)"
	}
	if d.Path() != "" {
		detail += ", node " + d.Path()
	}
	e.check(ok, "device", d.Name(), detail)
	if !e.examineNamespace(p) || !ok {
		return
	}
	if e.examinePorts(p) {
		e.examineGIDs(p)
	}
}

// abiRange is the range of versions of a driver's interface, "" if it is not known here.
func abiRange(driver string) string {
	for _, known := range uverbs.Drivers() {
		switch {
		case known.Name != driver:
		case known.MinABI == known.MaxABI:
			return fmt.Sprint(known.MinABI)
		default:
			return fmt.Sprintf("%d to %d", known.MinABI, known.MaxABI)
		}
	}
	return ""
}

// examineDriver looks for a provider. What the kernel names no driver for has a more basic
// fault, which the node tells.
func (e *examination) examineDriver(p *patient) bool {
	d := p.dev
	if errors.Is(d.Usable(), discover.ErrNoVerbs) || errors.Is(d.Usable(), discover.ErrNoModule) {
		return true
	}
	var names []string
	for _, known := range uverbs.Drivers() {
		names = append(names, known.Name)
		if known.Name != d.Driver() {
			continue
		}
		if d.ABI() >= known.MinABI && d.ABI() <= known.MaxABI {
			return true
		}
		p.find(Error, DriverABI, fmt.Sprintf("the kernel's driver %s has version %d of its interface, this program speaks %s",
			d.Driver(), d.ABI(), abiRange(d.Driver())),
			append([]Fix{{here, "use a newer release of this program, or of the kernel, whichever has the lower version"}}, e.besides(p)...)...)
		return false
	}
	p.find(Error, UnknownDriver, fmt.Sprintf("its driver is %s, and this program drives %s", d.Driver(), strings.Join(names, ", ")), e.besides(p)...)
	return false
}

// besides makes a software device on the interface of one that cannot be driven, which may
// hold one of each kind.
func (e *examination) besides(p *patient) []Fix {
	switch {
	case p.dev.Driver() == "rxe":
		return nil
	case len(p.netdevs) > 0 && !p.has(e.way.netdev):
		return e.softDeviceOn(p.netdevs[0])
	}
	return e.softDevice()
}

// examineNode tells what is the matter with the node.
func (e *examination) examineNode(p *patient) bool {
	err := p.dev.Usable()
	switch {
	case err == nil:
		return true
	case errors.Is(err, discover.ErrNoVerbs):
		p.find(Error, NoVerbs, "its kernel driver offers nothing to programs", e.besides(p)...)
	case errors.Is(err, discover.ErrNoModule):
		p.findings = append(p.findings, e.noModule("ib_uverbs", fmt.Sprintf("the kernel has %s but ib_uverbs is not loaded", p.object())))
	default:
		p.findings = append(p.findings, e.badNode(p.object(), err))
	}
	return false
}

// open opens the device, which is the only proof that it can be.
func (e *examination) open(p *patient) bool {
	ctx, err := p.dev.Open()
	if err == nil {
		if p.gids, err = ctx.GIDTable(); err == nil {
			p.ctx = ctx
			return true
		}
		ctx.Close()
	}
	if errors.Is(err, syscall.EPERM) { // the look at the node was not refused, so it is no cgroup
		p.find(Error, ForeignNamespace, "opening it is not permitted: it belongs to another network namespace (exclusive mode)",
			Fix{e.facts.asRoot(), fmt.Sprintf("rdma dev set %s netns NAMESPACE", p.name())})
		return false
	}
	p.findings = append(p.findings, e.notOpened(p.object(), p.dev.Path(), err))
	return false
}

func (e *examination) release(p *patient) {
	if p.ctx != nil {
		p.ctx.Close()
	}
}

// examineNamespace looks for an interface of the device in this network namespace.
func (e *examination) examineNamespace(p *patient) bool {
	d := p.dev
	if d.Reachable() == nil {
		if len(p.netdevs) > 0 {
			e.check(true, "interface", p.name(), strings.Join(p.netdevs, ", "))
		}
		return true
	}
	netdev := e.foreignInterface(d)
	what := "its network interface is in another network namespace"
	if netdev != "" {
		what = fmt.Sprintf("its network interface (%s) is in another network namespace", netdev)
	} else {
		netdev = "INTERFACE"
	}
	e.check(false, "interface", p.name(), what)
	fixes := e.facts.starting("--network host", "hostNetwork: true")
	fixes = append(fixes, Fix{e.facts.asRoot(), fmt.Sprintf("ip link set %s netns PID", netdev)})
	p.find(Error, ForeignNamespace, what, fixes...)
	return false
}

// foreignInterface is what the GID table says, whose first entries are of the interface.
func (e *examination) foreignInterface(d *uverbs.Device) string {
	gid, ok, err := e.System.GID(&discover.Device{Name: d.Name(), CharDev: discover.CharDev{SysName: filepath.Base(d.Path())}}, 1, 0)
	if err != nil || !ok {
		return ""
	}
	return gid.NetDev
}

package doctor

import (
	"context"
	"net/netip"
	"slices"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// Options say what the system is examined for. The zero value is a program that registers
// little memory and talks to nobody in particular.
type Options struct {
	// Addr is whom the program wants to reach. A link-local address needs its zone.
	Addr netip.Addr
	// Memory is how many bytes the program registers at once. Zero stands for 64 KiB.
	Memory int
	// System replaces the running kernel. It exists for this module's own tests: its type
	// is internal.
	System *discover.System
}

// Examine finds out what keeps RDMA from working. The error says that the examination could
// not be made: there is no Linux, netlink fails in a way that explains nothing, or ctx has
// ended. Findings are no error.
func Examine(ctx context.Context, o Options) (*Report, error) {
	if o.System == nil {
		o.System = discover.Host()
	}
	if o.Memory == 0 {
		o.Memory = 64 << 10
	}
	e := &examination{ctx: ctx, Options: o, report: Report{Findings: []Finding{}}}
	e.facts = readFacts(o.System.Root)
	if o.System.Network != nil {
		e.interfaces, _ = o.System.Network.Interfaces() // without them less is known, no more
	}
	e.findWay()
	if err := e.run(); err != nil {
		return nil, err
	}
	e.report.sort()
	return &e.report, nil
}

// examination is one in progress.
type examination struct {
	Options
	ctx        context.Context
	facts      facts
	interfaces []discover.Interface
	way        way
	from       netip.Addr // that leads to Addr, when it is resolved
	through    *patient   // the device that it leads through
	exclusive  bool       // a device belongs to one network namespace
	blind      bool       // the kernel's RDMA is not there, or not to be seen
	devices    []*patient
	report     Report
}

// run goes from the kernel upwards. What needs a thing that is broken is not looked at: it
// would only repeat the complaint in other words.
func (e *examination) run() error {
	e.checkKernel()
	if err := e.checkNetlink(); err != nil {
		return err
	}
	if err := e.findDevices(); err != nil {
		return err
	}
	for _, p := range e.devices {
		e.examine(p)
	}
	if !e.blind {
		e.checkCM()
	}
	e.judge()
	if !e.failed() {
		e.checkMemory()
	}
	if !e.failed() && e.Addr.IsValid() {
		e.checkWay()
	}
	if !e.failed() {
		e.checkLoopback()
	}
	for _, p := range e.devices {
		e.release(p)
	}
	return e.ctx.Err()
}

// failed tells whether there is an error already.
func (e *examination) failed() bool {
	return slices.ContainsFunc(e.report.Findings, func(f Finding) bool { return f.Severity == Error })
}

func (e *examination) find(f Finding) {
	if f.Fixes == nil {
		f.Fixes = []Fix{} // a list in JSON
	}
	e.report.Findings = append(e.report.Findings, f)
}

func (e *examination) check(ok bool, name, object, detail string) {
	e.report.Checks = append(e.report.Checks, Check{Name: name, Object: object, OK: ok, Detail: detail})
}

// judge hands in what was found about the devices. Those that come nearest to working count:
// in a container that was given one of four devices the other three are as they should be.
// Where an interface leads to the address, its devices count alone.
func (e *examination) judge() {
	near := e.nearest()
	for _, p := range e.devices {
		for _, f := range p.findings {
			if !slices.Contains(near, p) {
				f.Severity = Note
			}
			e.find(f)
		}
	}
}

func (e *examination) nearest() []*patient {
	among := slices.DeleteFunc(slices.Clone(e.devices), func(p *patient) bool { return !p.has(e.way.netdev) })
	if len(among) == 0 {
		among = e.devices
	}
	best := -1
	for _, p := range among {
		best = max(best, p.progress())
	}
	return slices.DeleteFunc(slices.Clone(among), func(p *patient) bool { return p.progress() < best })
}

func (e *examination) verbsOptions() uverbs.Option { return uverbs.WithSystem(e.System) }

func (e *examination) cmOptions() rdmacm.Option { return rdmacm.WithSystem(e.System) }

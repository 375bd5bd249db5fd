// Package boot is what the host asks of the guest, as words of the kernel's
// command line.
package boot

import "strings"

// ExitPort is the I/O port of QEMU's isa-debug-exit device.
const ExitPort = 0x501

// GroupFile is where the guest finds which modules to load for a group: paths
// below the root, one a line.
func GroupFile(group string) string { return "/etc/lab/modules." + group }

// Plan says what the guest is made of.
type Plan struct {
	Groups []string // of modules, see package kernel
	Links  []Link   // RDMA devices to make, in this order
	Shares []string // tags of the host's folders, mounted at /TAG
}

// Link is an RDMA device on a network interface.
type Link struct{ Name, Type, NetDev string }

const (
	wordGroups = "lab.modules="
	wordLinks  = "lab.links="
	wordShares = "lab.shares="
)

// Words is p as words of a command line.
func (p Plan) Words() []string {
	var links []string
	for _, l := range p.Links {
		links = append(links, l.Name+":"+l.Type+":"+l.NetDev)
	}
	return []string{
		wordGroups + strings.Join(p.Groups, ","),
		wordLinks + strings.Join(links, ","),
		wordShares + strings.Join(p.Shares, ","),
	}
}

// Parse finds the plan in a command line. Words of others are passed over.
func Parse(cmdline string) Plan {
	var p Plan
	for w := range strings.FieldsSeq(cmdline) {
		if v, ok := strings.CutPrefix(w, wordGroups); ok {
			p.Groups = split(v)
		}
		if v, ok := strings.CutPrefix(w, wordShares); ok {
			p.Shares = split(v)
		}
		if v, ok := strings.CutPrefix(w, wordLinks); ok {
			for _, l := range split(v) {
				f := append(strings.SplitN(l, ":", 3), "", "")
				p.Links = append(p.Links, Link{f[0], f[1], f[2]})
			}
		}
	}
	return p
}

// Devices names the RDMA devices.
func (p Plan) Devices() []string {
	var out []string
	for _, l := range p.Links {
		out = append(out, l.Name)
	}
	return out
}

func split(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

func (info *deviceInfo) print(w io.Writer, verbose bool) {
	state := "usable"
	if !info.Usable {
		state = "NOT usable"
	}
	fmt.Fprintf(w, "%s: %s, driver %s, protocol %s, node %s\n", info.Name, state, info.Driver, orDash(info.Protocol), orDash(info.Node))
	for _, why := range []string{info.Reason, info.Note} {
		if why != "" {
			fmt.Fprintf(w, "    %s\n", why)
		}
	}
	if len(info.NetDevs) > 0 {
		fmt.Fprintf(w, "    interfaces %s\n", strings.Join(info.NetDevs, ", "))
	}
	if verbose {
		info.printDetails(w)
	}
	for i := range info.Ports {
		info.Ports[i].print(w, verbose)
	}
}

func (info *deviceInfo) printDetails(w io.Writer) {
	fmt.Fprintf(w, "    node GUID %s, firmware %s, node type %s, ABI version %d\n",
		info.NodeGUID, orDash(info.Firmware), info.NodeType, info.ABI)
	if info.SystemGUID != "" {
		fmt.Fprintf(w, "    system image GUID %s\n", info.SystemGUID)
	}
	if len(info.Capabilities) > 0 {
		printWords(w, "    capabilities", info.Capabilities)
	}
	if info.Limits != nil {
		printAttributes(w, "    ", deviceAttributes, info.Limits)
	}
}

func (p *portInfo) print(w io.Writer, verbose bool) {
	fmt.Fprintf(w, "    port %d: %s, MTU %d", p.Port, p.State, p.MTU)
	if p.Gbps > 0 {
		fmt.Fprintf(w, ", %g Gb/s", p.Gbps)
	}
	fmt.Fprintln(w)
	if verbose {
		p.printDetails(w)
	}
	if len(p.GIDs) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "        INDEX\tGID\tIPv4\tTYPE\tINTERFACE")
	for _, g := range p.GIDs {
		fmt.Fprintf(t, "        %d\t%s\t%s\t%s\t%s\n", g.Index, g.GID, orDash(g.IPv4), g.Type, orDash(g.Interface))
	}
	t.Flush()
}

func (p *portInfo) printDetails(w io.Writer) {
	fmt.Fprintf(w, "        %s, physical state %s, largest MTU %d, width %s\n", p.LinkLayer, p.PhysState, p.MaxMTU, orDash(p.Width))
	printAttributes(w, "        ", portAttributes, p.Attributes)
	words := make([]string, len(p.PKeys))
	for i, k := range p.PKeys {
		words[i] = fmt.Sprintf("%d=%s", k.Index, k.PKey)
	}
	if len(words) > 0 {
		printWords(w, "        partition keys", words)
	}
}

func printAttributes[T any](w io.Writer, indent string, table []attribute[T], values attributes) {
	width := 0
	for _, a := range table {
		width = max(width, len(a.name))
	}
	for _, a := range table {
		fmt.Fprintf(w, "%s%-*s  %v\n", indent, width, a.name, values[a.name])
	}
}

// printWords breaks lines as ls does.
func printWords(w io.Writer, head string, words []string) {
	const width = 100
	line := head
	for _, word := range words {
		if len(line)+1+len(word) > width {
			fmt.Fprintln(w, line)
			line = strings.Repeat(" ", len(head))
		}
		line += " " + word
	}
	fmt.Fprintln(w, line)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

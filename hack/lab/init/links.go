//go:build linux

package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pureverbs/rdma/hack/lab/boot"
	"github.com/pureverbs/rdma/internal/discover"
)

// addLinks makes RDMA devices and waits until each can be used.
func addLinks(links []boot.Link) error {
	sys := discover.Host()
	for _, l := range links {
		if err := sys.AddLink(l.Name, l.Type, l.NetDev); err != nil {
			return err
		}
	}
	for _, l := range links {
		if err := waitLink(l); err != nil {
			return err
		}
	}
	return nil
}

// waitLink waits for the port and for a GID of each address of its interface. The
// kernel fills the table from a work queue, and veth gets its link-local address
// a moment after it is up.
func waitLink(l boot.Link) error {
	dir := filepath.Join("/sys/class/infiniband", l.Name, "ports/1")
	var missing string
	for range 500 {
		state, _ := os.ReadFile(filepath.Join(dir, "state"))
		missing = "an active port"
		if strings.Contains(string(state), "ACTIVE") {
			if missing = missingGID(dir, l); missing == "" {
				return nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("device %s does not have %s after 5 s", l.Name, missing)
}

// missingGID names what the GID table lacks. That of an iWARP port has nothing to
// do with addresses.
func missingGID(port string, l boot.Link) string {
	if l.Type == "siw" {
		return ""
	}
	gids := readGIDs(port)
	i, err := net.InterfaceByName(l.NetDev)
	if err != nil {
		return "its interface " + l.NetDev
	}
	addrs, _ := i.Addrs()
	local := false
	for _, a := range addrs {
		ip := a.(*net.IPNet).IP
		local = local || ip.To4() == nil && ip.IsLinkLocalUnicast()
		if !slices.Contains(gids, netip.AddrFrom16([16]byte(ip.To16()))) {
			return "a GID for " + ip.String()
		}
	}
	if !local {
		return "a link-local address"
	}
	return ""
}

// readGIDs reads the first entries: there are a thousand, almost all empty, and
// each costs a millisecond.
func readGIDs(port string) []netip.Addr {
	var gids []netip.Addr
	for n := range 8 {
		b, _ := os.ReadFile(filepath.Join(port, "gids", strconv.Itoa(n))) // "": there is none
		if a, err := netip.ParseAddr(strings.TrimSpace(string(b))); err == nil {
			gids = append(gids, a)
		}
	}
	return gids
}

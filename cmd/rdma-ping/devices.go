package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/uverbs"
)

// usableDevice looks ahead of a connection: without a device the connection manager's
// errors point elsewhere.
func (a *app) usableDevice() error {
	devs, err := uverbs.Devices(a.verbsOptions()...)
	if err != nil {
		return err
	}
	if len(devs) == 0 {
		return errNoDevices
	}
	var reasons error
	for _, d := range devs {
		reason := d.Usable()
		if reason == nil {
			return nil
		}
		reasons = errors.Join(reasons, reason)
	}
	return fmt.Errorf("no RDMA device is usable here: %w", reasons)
}

// noDevices is what to do about an empty list.
const noDevices = "no RDMA devices: the kernel's RDMA support is there but knows no device; " +
	"load your adapter's driver, or make a software device as root: rdma link add rxe0 type rxe netdev eth0"

var errNoDevices = errors.New(noDevices)

// deviceInfo is one device as the command shows it; the names are those of --json.
type deviceInfo struct {
	Name     string     `json:"name"`
	Usable   bool       `json:"usable"`
	Reason   string     `json:"reason,omitempty"`
	Note     string     `json:"note,omitempty"`
	Driver   string     `json:"driver"`
	Protocol string     `json:"protocol"`
	Node     string     `json:"node"`
	NodeGUID string     `json:"node_guid"`
	Firmware string     `json:"firmware,omitempty"`
	NetDevs  []string   `json:"interfaces,omitempty"`
	Limits   *limitInfo `json:"limits,omitempty"`
	Ports    []portInfo `json:"ports,omitempty"`
}

type limitInfo struct {
	MaxQP     uint32 `json:"max_qp"`
	MaxCQ     uint32 `json:"max_cq"`
	MaxMR     uint32 `json:"max_mr"`
	MaxMRSize uint64 `json:"max_mr_size"`
	MaxQPWR   uint32 `json:"max_qp_wr"`
	MaxSGE    uint32 `json:"max_sge"`
}

type portInfo struct {
	Port  int       `json:"port"`
	State string    `json:"state"`
	MTU   int       `json:"mtu"`
	GIDs  []gidInfo `json:"gids"`
}

type gidInfo struct {
	Index int    `json:"index"`
	GID   string `json:"gid"`
	Type  string `json:"type"`
}

const devicesLong = `devices lists the RDMA devices that the kernel knows, with what keeps those that
cannot be used from here. A system without any is no error.`

func (a *app) devicesCommand() *cobra.Command {
	var asJSON, verbose bool
	cmd := &cobra.Command{
		Use:                   "devices [flags]",
		Short:                 "List RDMA devices and say which can be used",
		Long:                  devicesLong,
		Args:                  noArguments,
		DisableFlagsInUseLine: true,
		RunE:                  func(*cobra.Command, []string) error { return a.devices(asJSON, verbose) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON array")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "also print GUIDs, firmware and limits")
	return cmd
}

func (a *app) devices(asJSON, verbose bool) error {
	devs, err := uverbs.Devices(a.verbsOptions()...)
	missing := errors.Is(err, discover.ErrNoModule)
	if err != nil && !missing {
		return err
	}
	list := make([]deviceInfo, len(devs))
	for i, d := range devs {
		list[i] = describe(d)
	}
	switch {
	case asJSON:
		enc := json.NewEncoder(a.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(list)
	case missing:
		fmt.Fprintf(a.stdout, "no RDMA devices: %s\n", explain(err))
	case len(list) == 0:
		fmt.Fprintln(a.stdout, noDevices)
	}
	for i := range list {
		list[i].print(a.stdout, verbose)
	}
	return nil
}

// describe asks a device about itself, as far as it can be opened.
func describe(d *uverbs.Device) deviceInfo {
	info := deviceInfo{
		Name: d.Name(), Driver: d.Driver(), Protocol: d.Protocol(), Node: d.Path(), Firmware: d.Firmware(),
		NodeGUID: formatGUID(d.NodeGUID()), NetDevs: d.NetDevs(),
	}
	if err := d.Reachable(); err != nil {
		info.Note = err.Error()
	}
	err := d.Usable()
	if err == nil {
		err = info.query(d)
	}
	if err != nil {
		info.Reason = err.Error()
	}
	info.Usable = err == nil
	return info
}

// query fills in what only the opened device tells.
func (info *deviceInfo) query(d *uverbs.Device) error {
	ctx, err := d.Open()
	if err != nil {
		return err
	}
	defer ctx.Close()
	attr, err := ctx.QueryDevice()
	if err != nil {
		return err
	}
	info.Limits = &limitInfo{
		MaxQP: attr.MaxQP, MaxCQ: attr.MaxCQ, MaxMR: attr.MaxMR, MaxMRSize: attr.MaxMRSize,
		MaxQPWR: attr.MaxQPWR, MaxSGE: attr.MaxSGE,
	}
	gids, err := ctx.GIDTable()
	if err != nil {
		return err
	}
	for n := 1; n <= d.NumPorts(); n++ {
		port, err := ctx.QueryPort(uint8(n))
		if err != nil {
			return err
		}
		info.Ports = append(info.Ports, portInfo{
			Port: n, State: port.State.String(), MTU: port.ActiveMTU.Bytes(), GIDs: portGIDs(gids, n),
		})
	}
	return nil
}

func portGIDs(table []uverbs.GIDEntry, port int) []gidInfo {
	gids := []gidInfo{}
	for _, e := range table {
		if e.Port == port {
			gids = append(gids, gidInfo{Index: e.Index, GID: e.GID.String(), Type: e.Type.String()})
		}
	}
	return gids
}

func formatGUID(g uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff)
}

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
	for _, p := range info.Ports {
		fmt.Fprintf(w, "    port %d: %s, MTU %d\n", p.Port, p.State, p.MTU)
		for _, g := range p.GIDs {
			fmt.Fprintf(w, "        GID %d: %s, %s\n", g.Index, g.GID, g.Type)
		}
	}
}

func (info *deviceInfo) printDetails(w io.Writer) {
	fmt.Fprintf(w, "    node GUID %s, firmware %s\n", info.NodeGUID, orDash(info.Firmware))
	if l := info.Limits; l != nil {
		fmt.Fprintf(w, "    at most %d queue pairs of %d requests with %d pieces, %d completion queues, %d memory regions\n",
			l.MaxQP, l.MaxQPWR, l.MaxSGE, l.MaxCQ, l.MaxMR)
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

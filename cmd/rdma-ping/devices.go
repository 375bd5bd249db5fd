package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/uverbs"
)

// deviceInfo is one device as the command shows it; the names are those of --json.
type deviceInfo struct {
	Name         string     `json:"name"`
	Usable       bool       `json:"usable"`
	Reason       string     `json:"reason,omitempty"`
	Note         string     `json:"note,omitempty"`
	Driver       string     `json:"driver"`
	ABI          uint32     `json:"abi_version"`
	Protocol     string     `json:"protocol"`
	NodeType     string     `json:"node_type"`
	Node         string     `json:"node"`
	NodeGUID     string     `json:"node_guid"`
	SystemGUID   string     `json:"sys_image_guid,omitempty"`
	Firmware     string     `json:"firmware,omitempty"`
	NetDevs      []string   `json:"interfaces,omitempty"`
	Capabilities []string   `json:"capabilities,omitempty"`
	Limits       attributes `json:"limits,omitempty"`
	Ports        []portInfo `json:"ports,omitempty"`
}

type portInfo struct {
	Port       int        `json:"port"`
	State      string     `json:"state"`
	PhysState  string     `json:"phys_state"`
	LinkLayer  string     `json:"link_layer"`
	MTU        int        `json:"mtu"`
	MaxMTU     int        `json:"max_mtu"`
	Gbps       float64    `json:"gb_per_s"`        // of the port, as the driver reports it
	Width      string     `json:"width,omitempty"` // lanes: "4X"
	Attributes attributes `json:"attributes"`
	PKeys      []pkeyInfo `json:"pkeys,omitempty"`
	GIDs       []gidInfo  `json:"gids"`
}

type pkeyInfo struct {
	Index int    `json:"index"`
	PKey  string `json:"pkey"`
}

type gidInfo struct {
	Index     int    `json:"index"`
	GID       string `json:"gid"`
	IPv4      string `json:"ipv4,omitempty"`
	Type      string `json:"type"`
	Interface string `json:"interface,omitempty"` // if it is in this network namespace
}

const devicesLong = `devices lists the RDMA devices that the kernel knows, with what keeps those that
cannot be used from here, and their ports and GIDs. A system without any is no error.

With -v or --json it shows what ibv_devinfo -v and show_gids do. The interface of a
GID is named if it is in this network namespace.`

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
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "also print GUIDs, firmware, capabilities, limits and partition keys")
	return cmd
}

func (a *app) devices(asJSON, verbose bool) error {
	devs, err := uverbs.Devices(a.verbsOptions()...)
	names := a.interfaceNames()
	missing := errors.Is(err, discover.ErrNoModule)
	if err != nil && !missing {
		return err
	}
	list := make([]deviceInfo, len(devs))
	for i, d := range devs {
		list[i] = describe(d, names)
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

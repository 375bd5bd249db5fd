package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/pureverbs/rdma/uverbs"
)

const linkAddLong = `add makes the RDMA device NAME in software, on the network interface DEV: rxe
(RoCE) or siw (iWARP). It does what 'rdma link add' of iproute2 does, in the same
words. It needs root on the host; the kernel loads the module if it can.`

const linkAddExample = `  rdma-ping link add rxe0 type rxe netdev eth0
  rdma-ping link add siw0 --type siw --netdev eth0`

const linkDelLong = `del removes the software RDMA device NAME. It needs root on the host, and waits
until every program has closed the device.`

func (a *app) linkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "link",
		Short: "Add and delete RDMA devices in software (rxe, siw)",
		Long:  "link adds and deletes RDMA devices in software; 'rdma-ping devices' lists them.",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("link: no command %q: use add or del", args[0])
			}
			return usagef("link: what? use add or del")
		},
		Args:                  cobra.ArbitraryArgs,
		DisableFlagsInUseLine: true,
	}
	cmd.AddCommand(a.linkAddCommand(), a.linkDelCommand())
	return cmd
}

// newLink is what link add is told.
type newLink struct{ name, typ, netdev string }

func (a *app) linkAddCommand() *cobra.Command {
	var l newLink
	cmd := &cobra.Command{
		Use:                   "add NAME [type TYPE] netdev DEV",
		Short:                 "Make a device on a network interface",
		Long:                  linkAddLong,
		Example:               linkAddExample,
		Args:                  func(_ *cobra.Command, args []string) error { return l.parse(args) },
		ValidArgsFunction:     a.completeLinkAdd,
		DisableFlagsInUseLine: true,
		RunE: func(*cobra.Command, []string) error {
			return a.host().AddLink(l.name, l.typ, l.netdev)
		},
	}
	cmd.Flags().StringVar(&l.typ, "type", "rxe", "`type` of the device, rxe or siw, if no word says so")
	cmd.Flags().StringVar(&l.netdev, "netdev", "", "network `interface`, if no word says so")
	return cmd
}

// parse reads NAME and pairs of a word and its value, in any order. Flags have been read
// before.
func (l *newLink) parse(args []string) error {
	if len(args) == 0 {
		return usagef("link add: no name: like link add rxe0 type rxe netdev eth0")
	}
	l.name = args[0]
	for pair := args[1:]; len(pair) > 0; pair = pair[2:] {
		value, ok := map[string]*string{"type": &l.typ, "netdev": &l.netdev}[pair[0]]
		switch {
		case !ok:
			return usagef("link add: %q is neither type nor netdev", pair[0])
		case len(pair) == 1:
			return usagef("link add: %s needs a value", pair[0])
		}
		*value = pair[1]
	}
	if l.netdev == "" {
		return usagef("link add: on which network interface? netdev DEV says")
	}
	return nil
}

func (a *app) linkDelCommand() *cobra.Command {
	return &cobra.Command{
		Use:                   "del NAME",
		Aliases:               []string{"delete"},
		Short:                 "Remove a device",
		Long:                  linkDelLong,
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("link del: one name, got %q", args)
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.deviceNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.host().DelLink(args[0]) },
	}
}

// completeLinkAdd offers what may come next.
func (a *app) completeLinkAdd(_ *cobra.Command, args []string, _ string) (next []string, _ cobra.ShellCompDirective) {
	switch last := len(args) - 1; {
	case last < 0:
	case last%2 == 0:
		next = []string{"type", "netdev"}
	case args[last] == "type":
		next = []string{"rxe", "siw"}
	case args[last] == "netdev":
		for _, i := range a.interfaceNames() {
			next = append(next, i.Name)
		}
		slices.Sort(next)
	}
	return next, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) deviceNames() (names []string) {
	devs, err := uverbs.Devices(a.verbsOptions()...)
	if err != nil {
		return nil
	}
	for _, d := range devs {
		names = append(names, d.Name())
	}
	return names
}

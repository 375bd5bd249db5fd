package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// The exit statuses. Scripts rely on them.
const (
	statusOK    = 0 // all requests were answered, or the command did its work
	statusLost  = 1 // at least one request was lost, or answered with wrong contents
	statusError = 2 // the command could not run: usage, no device, no connection
)

// defaultPort is rping's: the server answers both protocols on it.
const defaultPort = 7174

// app is what all subcommands share.
type app struct {
	stdout, stderr io.Writer
	system         *discover.System // nil: the running kernel
	status         int
}

// run is the whole program but for the process around it, so that tests can run a server
// and a client of it in one process, on a fake kernel.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, system *discover.System) int {
	a := &app{stdout: stdout, stderr: stderr, system: system}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return a.status
	case errors.As(err, new(*usageError)):
		fmt.Fprintf(stderr, "rdma-ping: %v\nTry 'rdma-ping --help'.\n", err)
	default:
		fmt.Fprintf(stderr, "rdma-ping: %s\n", explain(err))
	}
	return statusError
}

// usageError is a mistake on the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

const rootLong = `rdma-ping sends messages to an RDMA server, waits for the answers and prints
how long each round trip took.

The server is 'rdma-ping serve' or, recognised by itself, 'rping -s' of rdma-core.
ADDR is an IPv4 or IPv6 address or a host name, with or without a port:
10.9.0.1, 10.9.0.1:7174, fe80::1%eth0, [fe80::1%eth0]:7174. Several are pinged at the
same time, each over a connection of its own.

Ctrl-C ends with the summary, Ctrl-\ prints one line of it and goes on.

Exit status: 0 all requests were answered, 1 some were lost or some ADDR could not be
pinged, 2 could not run.`

const rootExample = `  rdma-ping 10.9.0.1                  one message a second until Ctrl-C
  rdma-ping 10.9.0.1 10.9.0.2         two servers, and a table at the end
  rdma-ping -f -c 10000 10.9.0.1      as fast as the answers come, summary only
  rdma-ping -s 64k --poll 10.9.0.1    64 KiB messages, spinning for low latency
  rdma-ping --json -c 5 10.9.0.1      one JSON object a line
  rdma-ping --exporter :9417 A1 A2 A3 metrics for Prometheus, for ever
  rdma-ping serve                     the other side`

func (a *app) rootCommand() *cobra.Command {
	o, e := defaultPingOptions(), exporterOptions{}
	root := &cobra.Command{
		Use:           "rdma-ping [flags] ADDR...",
		Short:         "Measure round trips over RDMA",
		Long:          rootLong,
		Example:       rootExample,
		SilenceErrors: true, // run prints them, once
		SilenceUsage:  true, // a usage text must not bury the error
		Args:          someAddresses,
		RunE: func(cmd *cobra.Command, args []string) error {
			if exporting(cmd.Flags()) {
				return a.export(cmd.Context(), cmd.Flags(), &e, &o, args)
			}
			if err := o.complete(cmd.Flags()); err != nil {
				return err
			}
			return a.ping(cmd.Context(), &o, args)
		},
		CompletionOptions:     cobra.CompletionOptions{HiddenDefaultCmd: true},
		DisableFlagsInUseLine: true,
	}
	o.addFlags(root.Flags())
	e.addFlags(root.Flags())
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	_ = root.RegisterFlagCompletionFunc("targets", cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)) // files
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{plainFlag(err)} })
	root.AddCommand(a.perfCommand())
	root.AddCommand(a.serveCommand(), a.devicesCommand(), a.doctorCommand(), a.versionCommand())
	root.AddCommand(a.linkCommand(), a.completionCommand())
	root.SetHelpCommand(helpCommand(root))
	return root
}

// helpCommand is cobra's, but for a command that there is not: that is a mistake.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [command]", Short: "Help about any command", DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("no command %q", strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

func someAddresses(cmd *cobra.Command, args []string) error {
	if len(args) == 0 && !exporting(cmd.Flags()) { // which has a list of them
		return usagef("no address: whom to ping?")
	}
	return nil
}

func oneAddress(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("one address only, got %q", args)
	}
	return someAddresses(cmd, args)
}

// noArguments is cobra.NoArgs with our exit status.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments, got %q", cmd.Name(), args)
	}
	return nil
}

func (a *app) verbsOptions() []uverbs.Option {
	if a.system == nil {
		return nil
	}
	return []uverbs.Option{uverbs.WithSystem(a.system)}
}

func (a *app) cmOptions() []rdmacm.Option {
	if a.system == nil {
		return nil
	}
	return []rdmacm.Option{rdmacm.WithSystem(a.system)}
}

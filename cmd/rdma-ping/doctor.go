package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pureverbs/rdma/doctor"
)

// statusFindings is the exit status of doctor when something is wrong.
const statusFindings = 1

const doctorLong = `doctor finds out why RDMA does not work in this host, container or pod: modules,
device nodes, permissions, drivers, network namespaces, ports, GIDs, the limit on
locked memory, seccomp. It says what is wrong, why that matters and what mends it,
the cause before what follows from it. It changes nothing. With ADDR it also finds
out which device and which GID would be used for that address.

Exit status: 0 healthy, 1 something is wrong, 2 could not run.`

const doctorExample = `  rdma-ping doctor                   what is wrong here?
  rdma-ping doctor 10.9.0.1          why can 10.9.0.1 not be pinged?
  rdma-ping doctor -s 1M 10.9.0.1    and with messages of 1 MiB?
  rdma-ping doctor --json            one JSON object`

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	size := defaultPingOptions().size
	cmd := &cobra.Command{
		Use:                   "doctor [flags] [ADDR]",
		Short:                 "Find out why RDMA does not work here",
		Long:                  doctorLong,
		Example:               doctorExample,
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("one address only, got %q", args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.doctor(cmd.Context(), args, size, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().VarP(sizeValue{&size, maxData}, "size", "s", "bytes of data in a message, for the limit on locked memory: 56, 4k, 1MiB")
	return cmd
}

func (a *app) doctor(ctx context.Context, args []string, size int, asJSON bool) error {
	o := doctor.Options{Memory: pingMemory(size), System: a.system}
	if len(args) > 0 {
		addr, err := resolveAddr(ctx, args[0], defaultPort)
		if err != nil {
			return err
		}
		o.Addr = addr.Addr()
	}
	report, err := doctor.Examine(ctx, o)
	if err != nil {
		return err
	}
	if !report.Healthy() {
		a.status = statusFindings
	}
	if asJSON {
		enc := json.NewEncoder(a.stdout)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(struct {
			Healthy bool `json:"healthy"`
			*doctor.Report
		}{report.Healthy(), report})
	}
	printReport(a.stdout, report, o.Addr)
	return nil
}

// pingMemory is what the client registers at once.
func pingMemory(size int) int {
	return 2 * windowFor(size) * alignSlot(max(headerLen+size, rpingInfoLen))
}

func alignSlot(n int) int { return (n + slotAlign - 1) / slotAlign * slotAlign }

func printReport(w io.Writer, r *doctor.Report, addr netip.Addr) {
	problems := 0
	for _, f := range r.Findings {
		if f.Severity != doctor.Note {
			problems++
		}
	}
	switch {
	case problems == 1:
		fmt.Fprint(w, "1 thing is wrong.\n")
	case problems > 1:
		fmt.Fprintf(w, "%d things are wrong; the first is the most likely cause.\n", problems)
	case addr.IsValid():
		fmt.Fprintf(w, "RDMA works here, on the way to %v as far as can be told from this end.\n", addr)
	default:
		fmt.Fprint(w, "RDMA works here, as far as can be told from this end.\n")
	}
	for _, f := range r.Findings {
		printFinding(w, &f)
	}
	fmt.Fprint(w, "\nLooked at:\n")
	for _, c := range r.Checks {
		mark := "ok "
		if !c.OK {
			mark = "BAD"
		}
		fmt.Fprintf(w, "  %s %s: %s\n", mark, strings.TrimSpace(c.Name+" "+c.Object), c.Detail)
	}
}

func printFinding(w io.Writer, f *doctor.Finding) {
	fmt.Fprintf(w, "\n%s [%s]: %s: %s\n", strings.ToUpper(string(f.Severity)), f.Code, f.Object, oneLine(f.What))
	fmt.Fprintf(w, "  why it matters: %s\n", f.Why)
	for i, fix := range f.Fixes {
		how := "to mend it"
		if i > 0 {
			how = "or"
		}
		fmt.Fprintf(w, "  %s, %s:\n      %s\n", how, fix.Where, fix.Command)
	}
}

// Package doctor finds out why RDMA does not work in this process's surroundings: host,
// container or pod.
//
//	report, err := doctor.Examine(ctx, doctor.Options{Addr: netip.MustParseAddr("10.9.0.1")})
//	...
//	for _, f := range report.Findings {
//		log.Print(f.Severity, " ", f.Object, ": ", f.What)
//	}
//
// [Examine] looks at everything between a program and the wire, from the kernel's modules to
// the GID that a connection would use, and returns what is wrong as data: each [Finding] says
// what is wrong, why that matters and which commands mend it, and the one that the others
// follow from comes first. What could not be judged because of something more basic is left
// out, so that a report names causes and not their effects.
//
// It changes nothing, except that the kernel may load the modules ib_uverbs and rdma_ucm,
// which it does for any program that asks. It opens the devices for a moment, registers as
// much memory as the program is going to, resolves the address if there is one (which takes
// ARP or neighbour discovery, and sends nothing else), and makes a connection to itself. No
// privilege is needed.
//
// The report is of the calling thread: its network namespace, its user, its limits. A goroutine
// that changed one of them has to be locked to its thread.
//
// The command rdma-ping doctor prints the report.
package doctor

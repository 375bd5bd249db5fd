// Command rdma-ping measures round trips over RDMA, as ping(8) does over ICMP, and
// answers them.
//
//	rdma-ping serve            on one machine
//	rdma-ping 10.9.0.1         on the other
//
// It talks to its own server, to rping -s of rdma-core, and its server answers rping -c.
// It is one static binary and needs no library on the machine.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr, nil)
	stop()
	os.Exit(status)
}

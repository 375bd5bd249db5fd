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
	ctx, stop := interruptible(context.Background())
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr, nil)
	stop()
	os.Exit(status)
}

// interruptible returns a context that ends with the first Ctrl-C or SIGTERM. The second one
// ends the program, at once: whatever keeps it from ending in order, it can be ended.
func interruptible(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// Command hello sends a message to itself over RDMA: go run ./docs/hello 10.9.0.1:7000
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: hello ADDRESS:PORT, an address of an RDMA interface here")
	}
	ctx, addr := context.Background(), os.Args[1]
	var inbox *uverbs.MR
	ln, err := rdmacm.Listen(ctx, addr, &rdmacm.Options{Prepare: func(c *rdmacm.Conn) (err error) {
		// Before the client can send: memory to receive into.
		if inbox, err = c.AllocMR(64, uverbs.AccessLocalWrite); err == nil {
			_, err = c.QP().PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{inbox.SGE(0, 64)}}})
		}
		return err
	}})
	check(err)
	go send(ctx, addr, "hello, RDMA")

	conn, err := ln.Accept(ctx)
	check(err)
	wcs := make([]uverbs.WC, 1)
	_, err = conn.RecvCQ().Wait(ctx, wcs)
	check(err)
	check(wcs[0].Err())
	fmt.Printf("%v says: %s\n", conn.RemoteAddr().Addr(), inbox.Bytes()[:wcs[0].ByteLen])
	check(conn.Close())
	check(ln.Close())
}

func send(ctx context.Context, addr, text string) {
	conn, err := rdmacm.Dial(ctx, addr, nil)
	check(err)
	mr, err := conn.AllocMR(64, 0) // nobody but us reads it
	check(err)
	n := copy(mr.Bytes(), text)
	_, err = conn.QP().PostSend([]uverbs.SendWR{{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{mr.SGE(0, n)}}})
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

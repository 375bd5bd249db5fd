package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// address is what the two ends tell each other: "lid:qpn:psn:gid" in hexadecimal and a
// zero byte, 52 bytes in all.
type address struct {
	qpn, psn uint32
	gid      uverbs.GID
}

const addressLen = len("0000:000000:000000:") + 32 + 1

func (a address) encode() []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%s\x00", 0, a.qpn, a.psn, hex.EncodeToString(a.gid[:]))
}

func parseAddress(b []byte) (a address, err error) {
	if len(b) != addressLen || b[4] != ':' || b[11] != ':' || b[18] != ':' {
		return a, fmt.Errorf("peer sent %q, want lid:qpn:psn:gid", b)
	}
	qpn, err1 := strconv.ParseUint(string(b[5:11]), 16, 24)
	psn, err2 := strconv.ParseUint(string(b[12:18]), 16, 24)
	if _, err := hex.Decode(a.gid[:], b[19:51]); err != nil || err1 != nil || err2 != nil {
		return a, fmt.Errorf("peer sent %q, want hexadecimal numbers", b)
	}
	a.qpn, a.psn = uint32(qpn), uint32(psn)
	return a, nil
}

// meet exchanges addresses. The server connects before it answers, so that it is ready
// when the client, which sends first, hears of it.
func meet(ctx context.Context, o options, me address, connect func(address) error) error {
	if o.server == "" {
		return serve(ctx, o, me, connect)
	}
	c, err := dial(ctx, net.JoinHostPort(o.server, strconv.Itoa(o.port)))
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write(me.encode()); err != nil {
		return err
	}
	peer, err := receive(c)
	if err != nil {
		return err
	}
	if err := connect(peer); err != nil {
		return err
	}
	_, err = c.Write([]byte("done\x00"))
	return err
}

func serve(ctx context.Context, o options, me address, connect func(address) error) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", ":"+strconv.Itoa(o.port))
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	peer, err := receive(c)
	if err != nil {
		return err
	}
	if err := connect(peer); err != nil {
		return err
	}
	if _, err := c.Write(me.encode()); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 5))
	return err
}

func receive(c net.Conn) (address, error) {
	b := make([]byte, addressLen)
	if _, err := io.ReadFull(c, b); err != nil {
		return address{}, err
	}
	return parseAddress(b)
}

// dial tries for a while: the server may not be up yet.
func dial(ctx context.Context, addr string) (c net.Conn, err error) {
	var d net.Dialer
	for range 50 {
		if c, err = d.DialContext(ctx, "tcp", addr); err == nil {
			return c, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, err
}

package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/pureverbs/rdma/tests/pingpong/peer"
	"github.com/pureverbs/rdma/uverbs"
)

// address is what the two ends tell each other of a queue pair: "lid:qpn:psn:gid" in
// hexadecimal and a zero byte, 52 bytes in all. An empty slot is all zeros.
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

// meet exchanges addresses, slots of them, of which the first ones are used. The server
// connects before it answers, so that it is ready when the client, which sends first, hears
// of it.
func meet(ctx context.Context, o options, me []address, slots int, connect func([]address) error) error {
	if o.server == "" {
		return serve(ctx, o, me, slots, connect)
	}
	c, err := peer.Dial(ctx, net.JoinHostPort(o.server, strconv.Itoa(o.port)))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := send(c, me, slots); err != nil {
		return err
	}
	peers, err := receive(c, len(me), slots)
	if err != nil {
		return err
	}
	if err := connect(peers); err != nil {
		return err
	}
	_, err = c.Write([]byte("done\x00"))
	return err
}

func serve(ctx context.Context, o options, me []address, slots int, connect func([]address) error) error {
	c, err := peer.Accept(ctx, ":"+strconv.Itoa(o.port))
	if err != nil {
		return err
	}
	defer c.Close()
	peers, err := receive(c, len(me), slots)
	if err != nil {
		return err
	}
	if err := connect(peers); err != nil {
		return err
	}
	if err := send(c, me, slots); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 5))
	return err
}

func send(c net.Conn, me []address, slots int) error {
	var b bytes.Buffer
	for i := range slots {
		if i < len(me) {
			b.Write(me[i].encode())
		} else {
			b.Write(address{}.encode())
		}
	}
	_, err := c.Write(b.Bytes())
	return err
}

// receive returns the peer's addresses; they have to be n, one for each queue pair here.
func receive(c io.Reader, n, slots int) ([]address, error) {
	b := make([]byte, slots*addressLen)
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, fmt.Errorf("receive the peer's addresses: %w", err)
	}
	peers := make([]address, 0, slots)
	for ; len(b) > 0; b = b[addressLen:] {
		a, err := parseAddress(b[:addressLen])
		if err != nil {
			return nil, err
		}
		if a.qpn != 0 {
			peers = append(peers, a)
		}
	}
	if len(peers) != n {
		return nil, fmt.Errorf("the peer has %d queue pairs, want %d: both sides need the same -q", len(peers), n)
	}
	return peers, nil
}

//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/uverbs"
)

// loop is what to measure.
type loop struct {
	name string
	op   uverbs.Opcode
	size int
}

// loops are all that the device can do.
func (p *pair) loops() []loop {
	l := []loop{
		{"send-64", uverbs.OpSend, 64}, {"send-4k", uverbs.OpSend, 4096},
		{"write-64", uverbs.OpRDMAWrite, 64}, {"write-4k", uverbs.OpRDMAWrite, 4096},
		{"read-64", uverbs.OpRDMARead, 64}, {"read-4k", uverbs.OpRDMARead, 4096},
	}
	if !p.iWARP {
		l = append(l, loop{"atomic-8", uverbs.OpFetchAdd, 8})
	}
	return l
}

func (p *pair) prepare(l loop) {
	for i := range slots {
		p.sends[i] = uverbs.SendWR{
			ID: uint64(i), Opcode: l.op, Flags: uverbs.SendSignaled,
			SGL: []uverbs.SGE{p.client.mr.SGE(i*slotSize, l.size)},
		}
		if l.op != uverbs.OpSend {
			p.sends[i].RemoteAddr, p.sends[i].RKey = p.server.mr.Addr()+uint64(i)*slotSize, p.server.mr.RKey()
		}
		if l.op == uverbs.OpFetchAdd {
			p.sends[i].CompareAdd = 1
		}
		p.recvs[i] = uverbs.RecvWR{ID: uint64(i), SGL: []uverbs.SGE{p.server.mr.SGE(i*slotSize, slotSize)}}
	}
}

// reap polls for the completions of a chain. See onebench.c for why it yields.
func (p *pair) reap(cq *uverbs.CQ, batch int) error {
	for got := 0; got < batch; {
		n, err := cq.Poll(p.wcs[:batch])
		if err != nil {
			return err
		}
		for i := range n {
			if p.wcs[i].Status != uverbs.WCSuccess {
				return p.wcs[i].Err()
			}
		}
		if n == 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
		got += n
	}
	return nil
}

func (p *pair) transfer(op uverbs.Opcode, batch, count int) error {
	for done := 0; done < count; done += batch {
		if op == uverbs.OpSend {
			if _, err := p.server.qp.PostRecv(p.recvs[:batch]); err != nil {
				return err
			}
		}
		if _, err := p.client.qp.PostSend(p.sends[:batch]); err != nil {
			return err
		}
		if err := p.reap(p.client.cq, batch); err != nil {
			return err
		}
		if op == uverbs.OpSend {
			if err := p.reap(p.server.cq, batch); err != nil {
				return err
			}
		}
	}
	return nil
}

// verified transfers once with each side's bytes known before: the first l.size bytes of each of
// the first batch slots arrive, and no others.
func (p *pair) verified(l loop, batch int) error {
	from, to := p.client.mem, p.server.mem
	if l.op == uverbs.OpRDMARead {
		from, to = to, from
	}
	for i := range from {
		from[i] = byte(i + i/slotSize + int(l.op) + l.size + batch)
	}
	clear(to)
	want := make([]byte, len(to))
	for i := range batch {
		copy(want[i*slotSize:][:l.size], from[i*slotSize:])
	}
	if err := p.transfer(l.op, batch, batch); err != nil {
		return err
	}
	if !bytes.Equal(to, want) {
		return errors.New("other bytes arrived")
	}
	return nil
}

// counted says that n fetch-adds counted, and were told so.
func (p *pair) counted(n, batch int) error {
	for i := range batch {
		sum := binary.NativeEndian.Uint64(p.server.mem[i*slotSize:])
		before := binary.NativeEndian.Uint64(p.client.mem[i*slotSize:])
		if sum != uint64(n/batch) || before != sum-1 {
			return fmt.Errorf("the sum of %d atomics is %d, the last one found %d", n/batch, sum, before)
		}
	}
	return nil
}

// measure returns microseconds a message.
func (p *pair) measure(l loop, batch, count int) (float64, error) {
	warm := count / 10 / batch * batch
	count -= count % batch
	p.prepare(l)
	check := func(int) error { return p.verified(l, batch) }
	if l.op == uverbs.OpFetchAdd {
		clear(p.server.mem)
		check = func(n int) error { return p.counted(n, batch) }
	} else if err := check(0); err != nil {
		return 0, err
	}
	if err := p.transfer(l.op, batch, warm); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := p.transfer(l.op, batch, count); err != nil {
		return 0, err
	}
	took := time.Since(start)
	return float64(took) / float64(time.Microsecond) / float64(count), check(warm + count)
}

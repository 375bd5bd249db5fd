package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

func onFake(t *testing.T, driver uint32) *pair {
	k := fakekernel.New(fakekernel.Options{Devices: []fakekernel.Device{{Driver: driver}}})
	t.Cleanup(k.Close)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	p, err := connect(ctx, netip.MustParseAddrPort("10.9.0.1:7190"), rdmacm.WithSystem(k.System()))
	testutil.Must(t, err)
	return p
}

// TestMeasure: each loop runs and finds that its bytes arrived.
func TestMeasure(t *testing.T) {
	for name, driver := range map[string]uint32{"rxe": abi.RDMA_DRIVER_RXE, "siw": abi.RDMA_DRIVER_SIW} {
		p := onFake(t, driver)
		want := 7
		if driver == abi.RDMA_DRIVER_SIW {
			want--
		}
		if got := p.loops(); len(got) != want {
			t.Errorf("%s: %d loops, want %d", name, len(got), want)
		}
		for _, batch := range []int{1, slots} {
			for _, l := range p.loops() {
				t.Run(fmt.Sprint(name, "-", l.name, "-", batch), func(t *testing.T) {
					if took, err := p.measure(l, batch, 40); err != nil || took <= 0 {
						t.Errorf("took %v, %v", took, err)
					}
				})
			}
		}
	}
}

// TestVerified: what does not do as it is told is found out.
func TestVerified(t *testing.T) {
	p := onFake(t, abi.RDMA_DRIVER_RXE)
	short := loop{"write-64", uverbs.OpRDMAWrite, 64}
	p.prepare(short)
	p.sends[0].SGL[0].Length--
	if err := p.verified(short, 1); err == nil || !strings.Contains(err.Error(), "other bytes") {
		t.Errorf("a byte less than told: %v, want an error", err)
	}
	atomic := loop{"atomic-8", uverbs.OpFetchAdd, 8}
	p.prepare(atomic)
	clear(p.server.mem)
	testutil.Must(t, p.transfer(atomic.op, 1, 3))
	testutil.Must(t, p.counted(3, 1))
	if err := p.counted(4, 1); err == nil {
		t.Error("an atomic that is missing is no error")
	}
	p.sends[0].RKey++
	if err := p.transfer(atomic.op, 1, 1); err == nil {
		t.Error("a completion that failed is no error")
	}
}

package cmpeer

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
)

// onFake runs a test on fake devices of both kinds, whose iWARP forgives who sends first.
func onFake(t *testing.T, f func(t *testing.T, o Options)) {
	for name, driver := range map[string]uint32{"rxe": abi.RDMA_DRIVER_RXE, "siw": abi.RDMA_DRIVER_SIW} {
		t.Run(name, func(t *testing.T) {
			testutil.NoLeaks(t)
			k := fakekernel.New(fakekernel.Options{Devices: []fakekernel.Device{{Driver: driver}}, LaxMPA: true})
			defer k.Close()
			f(t, Options{
				Addr:   netip.MustParseAddrPort("10.9.0.1:7471"),
				System: []rdmacm.Option{rdmacm.WithSystem(k.System())},
			})
		})
	}
}

// both runs a server, and when it listens a client.
func both(t *testing.T, o *Options, serve func(context.Context) error, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ready, served := make(chan struct{}), make(chan error, 1)
	o.Ready = ready
	go func() { served <- serve(ctx) }()
	select {
	case <-ready:
	case err := <-served:
		t.Fatalf("server: %v", err)
	}
	if err := call(ctx); err != nil {
		t.Errorf("client: %v", err)
		cancel()
	}
	if err := <-served; err != nil {
		t.Errorf("server: %v", err)
	}
}

func TestMatose(t *testing.T) {
	onFake(t, func(t *testing.T, o Options) {
		for _, f := range []Fleet{
			{Connections: 1, Messages: 10, Size: 100},
			{Connections: 20, Messages: 3, Size: 4000},
			{Connections: 2},
		} {
			m := Matose{Options: o, Fleet: f, Migrate: f.Connections > 1}
			server, client := m, m
			both(t, &server.Options, server.Serve, func(ctx context.Context) error {
				messages, err := client.Call(ctx)
				for c, all := range messages {
					for i, got := range all {
						if want := Pattern(m.Size, c*m.Messages+i); !bytes.Equal(got, want) {
							return fmt.Errorf("connection %d, message %d: got %x, want %x", c, i, got, want)
						}
					}
				}
				return err
			})
		}
	})
}

func TestMessage(t *testing.T) {
	onFake(t, func(t *testing.T, o Options) {
		for _, oneWay := range []bool{false, true} {
			server := Message{Options: o, OneWay: oneWay, Text: [messageSize]byte{1, 15: 2}}
			client := Message{Options: o, OneWay: oneWay, Text: [messageSize]byte{3, 15: 4}}
			both(t, &server.Options, func(ctx context.Context) error {
				got, err := server.Serve(ctx)
				if !bytes.Equal(got, client.Text[:]) {
					t.Errorf("the server got %x", got)
				}
				return err
			}, func(ctx context.Context) error {
				got, err := client.Call(ctx)
				if !oneWay && !bytes.Equal(got, server.Text[:]) {
					t.Errorf("the client got %x", got)
				}
				return err
			})
		}
	})
}

func TestTime(t *testing.T) {
	onFake(t, func(t *testing.T, o Options) {
		server, client := Time{Options: o, Connections: 50}, Time{Options: o, Connections: 50}
		both(t, &server.Options, server.Serve, func(ctx context.Context) error {
			steps, err := client.Call(ctx)
			if len(steps) != 7 {
				t.Errorf("%d steps, want 7: %v", len(steps), steps)
			}
			return err
		})
	})
}

// onRXE runs a test on a fake device that has datagrams.
func onRXE(t *testing.T, f func(t *testing.T, o Options)) {
	testutil.NoLeaks(t)
	k := fakekernel.New(fakekernel.Options{})
	defer k.Close()
	f(t, Options{
		Addr:   netip.AddrPortFrom(netip.MustParseAddr("10.9.0.1"), AddyPort),
		System: []rdmacm.Option{rdmacm.WithSystem(k.System())},
	})
}

func TestAddy(t *testing.T) {
	onRXE(t, func(t *testing.T, o Options) {
		for _, f := range []Fleet{
			{Connections: 1, Messages: 10, Size: 100},
			{Connections: 20, Messages: 3, Size: 1000},
			{Connections: 2},
		} {
			server, client := Addy{Options: o, Fleet: f}, Addy{Options: o, Fleet: f}
			both(t, &server.Options, server.Serve, func(ctx context.Context) error {
				sent, got, err := client.Call(ctx)
				if diff := cmp.Diff(sent, got); diff != "" {
					t.Errorf("other messages came back: %s", diff)
				}
				return err
			})
		}
	})
}

func TestKey(t *testing.T) {
	onRXE(t, func(t *testing.T, o Options) {
		for _, sendOnly := range []bool{false, true} {
			key := Key{
				System: o.System, Group: netip.MustParseAddr("239.1.2.3"), Source: o.Addr.Addr(), Messages: 5, Size: 100,
			}
			receiver, sender := key, key
			sender.SendOnly = sendOnly
			both(t, &o, func(ctx context.Context) error {
				messages, err := receiver.Receive(ctx, o.listening)
				for i, got := range messages {
					if want := Pattern(key.Size, i); !bytes.Equal(got, want) {
						t.Errorf("message %d: got %x, want %x", i, got, want)
					}
				}
				return err
			}, sender.Send)
		}
	})
}

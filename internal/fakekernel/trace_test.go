//go:build linux

package fakekernel

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// traced is an mlx5 device that does not listen, and what its tracer wrote.
func traced(t *testing.T) (*Kernel, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	return start(t, Options{Trace: &out, Devices: []Device{{Driver: abi.RDMA_DRIVER_MLX5, MLX5: MLX5{NoExec: true}}}}), &out
}

// TestMarkErrors: what marks cannot say.
func TestMarkErrors(t *testing.T) {
	if err := mlx5Kernel(t, "", MLX5{}).Mark("hello"); err != unix.ENXIO {
		t.Errorf("without a trace: %v, want %v", err, unix.ENXIO)
	}
	k, _ := traced(t)
	for text, want := range map[string]error{
		"":                       unix.EINVAL,
		"hello":                  unix.ENOENT,
		"run":                    unix.ENOENT,
		"scenario x":             unix.ENOENT,
		"cqe":                    unix.EINVAL,
		"cqe c0 q0 send":         unix.EINVAL, // there is no such queue
		"cqe c0 q0 sent noise=1": unix.EINVAL,
	} {
		if err := k.Mark(text); err != want {
			t.Errorf("mark %q: %v, want %v", text, err, want)
		}
	}
}

// TestMarkFails: who cannot write the trace says so.
func TestMarkFails(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	k := start(t, Options{Trace: w, Devices: []Device{{Driver: abi.RDMA_DRIVER_MLX5, MLX5: MLX5{NoExec: true}}}})
	k.Mark("one")
	if err := k.Mark("two"); err != unix.EIO {
		t.Errorf("got %v, want %v", err, unix.EIO)
	}
}

// TestTrace: commands, memory and registers, as one program writes them by hand.
func TestTrace(t *testing.T) {
	k, out := traced(t)
	must(t, ignore(k.Mark("scenario one"), unix.ENOENT))
	a := openMLX5(t, k).qp()
	must(t, ignore(k.Mark("made"), unix.ENOENT))
	must(t, a.toInit())
	must(t, a.modify(a.rtr(a)))
	must(t, a.modify(a.rts(7)))
	a.post(mlx5Send, wqeCompletion, 0)
	must(t, ignore(k.Mark("posted"), unix.ENOENT))
	if err := k.Mark("cqe c0 q0 send noise=7"); err != unix.ENOENT {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"== one\n", "create queue pair ", " -> ok 0=", "# made\n", "modify queue pair ", "# posted\n",
		"  q0 send[0] 0000000a 00001101 00000008 00000000", "  q0 record 00000000 00000001\n",
		"  register 21+800 0000000a 00001101\n", "  completion ", "0a000011 0000",
	} {
		_, rest, ok := strings.Cut(out.String(), want)
		if !ok {
			t.Fatalf("no %q in what is left of\n%s", want, out.String())
		}
		out = bytes.NewBufferString(rest)
	}
	if err := k.Mark("scenario two"); err != unix.EBUSY {
		t.Errorf("a scenario with an open file: %v, want %v", err, unix.EBUSY)
	}
}

// ignore is nil for the error that is wanted.
func ignore(err, wanted error) error {
	if err == wanted {
		return nil
	}
	return err
}

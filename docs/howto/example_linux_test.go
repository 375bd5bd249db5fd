package howto

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/pureverbs/rdma/doctor"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// fake is what the examples run on: an open device. On a real kernel leave the options away.
func fake(o fakekernel.Options) (context.Context, *uverbs.Context, rdmacm.Option, func()) {
	kernel := fakekernel.New(o)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	device, err := FirstDevice(uverbs.WithSystem(kernel.System()))
	check(err)
	dev, err := device.Open()
	check(err)
	return ctx, dev, rdmacm.WithSystem(kernel.System()), func() {
		check(dev.Close())
		cancel()
		kernel.Close()
	}
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

// many runs an echo server until stop.
func many(ctx context.Context, dev *uverbs.Context, addr string, slots int, system rdmacm.Option) (at string, stop func()) {
	m, err := NewMany(dev, slots)
	check(err)
	l, err := rdmacm.Listen(ctx, addr, m.Options(system))
	check(err)
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error)
	go func() { served <- m.Serve(ctx, l) }()
	return l.Addr().String(), func() {
		cancel()
		check(<-served)
		check(l.Close())
		check(m.Close())
	}
}

// Three clients, whose messages go through the same eight slots.
func ExampleMany() {
	ctx, dev, system, end := fake(fakekernel.Options{})
	defer end()
	addr, stop := many(ctx, dev, "10.9.0.1:0", 8, system)
	defer stop()
	for _, name := range []string{"one", "two", "three"} {
		c := Caller{Addr: addr, System: []rdmacm.Option{system}}
		defer c.Close()
		for i := range 5 {
			answer, err := c.Call(ctx, fmt.Sprint(name, " ", i))
			check(err)
			if i == 4 {
				fmt.Println(answer)
			}
		}
	}
	// Output:
	// one 4
	// two 4
	// three 4
}

// A part of a table, which the server's program does not notice.
func ExampleFetch() {
	ctx, dev, system, end := fake(fakekernel.Options{})
	defer end()
	pd, err := dev.AllocPD()
	check(err)
	table, err := pd.AllocMR(4096, uverbs.AccessRemoteRead)
	check(err)
	copy(table.Bytes()[1000:], "a part of the table")
	l, err := rdmacm.Listen(ctx, "10.9.0.1:0", &rdmacm.Options{System: []rdmacm.Option{system}})
	check(err)
	serving, stop := context.WithCancel(ctx)
	served := make(chan error)
	go func() { served <- Offer(serving, l, pd, table) }()

	data, err := Fetch(ctx, l.Addr().String(), 1000, 6, system)
	check(err)
	fmt.Printf("%s\n", data)
	_, err = Fetch(ctx, l.Addr().String(), 4090, 7, system)
	fmt.Println(err)

	stop()
	check(<-served)
	check(errors.Join(l.Close(), table.Close(), pd.Close()))
	// Output:
	// a part
	// bytes 4090 to 4097 of a table of 4096
}

// Both ways bring the same.
func ExampleWaiter() {
	ctx, dev, system, end := fake(fakekernel.Options{})
	defer end()
	addr, stop := many(ctx, dev, "10.9.0.1:0", 8, system)
	defer stop()
	for _, wait := range []Waiter{Sleep, Spin} {
		conn, err := rdmacm.Dial(ctx, addr, &rdmacm.Options{System: []rdmacm.Option{system}, SignalAll: true})
		check(err)
		mr, err := conn.AllocMR(2*slotSize, uverbs.AccessLocalWrite)
		check(err)
		_, err = conn.QP().PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{mr.SGE(0, slotSize)}}})
		check(err)
		_, err = conn.QP().PostSend([]uverbs.SendWR{{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{mr.SGE(slotSize, 42)}}})
		check(err)
		var wcs [1]uverbs.WC
		_, err = wait(ctx, conn.RecvCQ(), wcs[:])
		check(err)
		fmt.Println(wcs[0].ByteLen, "bytes,", wcs[0].Status)
		check(conn.Close())
	}
	// Output:
	// 42 bytes, success
	// 42 bytes, success
}

// The server goes away and comes back, and the client does not notice.
func ExampleCaller() {
	ctx, dev, system, end := fake(fakekernel.Options{})
	defer end()
	addr, stop := many(ctx, dev, "10.9.0.1:7171", 8, system)
	c := Caller{Addr: addr, System: []rdmacm.Option{system}}
	defer c.Close()
	for range 2 {
		answer, err := c.Call(ctx, "hello")
		check(err)
		fmt.Println(answer)
		stop()
		_, stop = many(ctx, dev, addr, 8, system)
	}
	stop()
	fmt.Println("connected", c.Dials, "times")
	// Output:
	// hello
	// hello
	// connected 2 times
}

// A container that was given the limit of 64 KiB.
func ExampleReady() {
	root, err := os.MkdirTemp("", "howto")
	check(err)
	defer os.RemoveAll(root)
	check(os.MkdirAll(root+"/proc/self", 0o755))
	check(os.WriteFile(root+"/proc/self/limits", []byte("Max locked memory         65536                65536                bytes\n"), 0o644))
	kernel := fakekernel.New(fakekernel.Options{Root: root})
	defer kernel.Close()
	problems, err := Ready(context.Background(), doctor.Options{Memory: 1 << 20, System: kernel.System()})
	check(err)
	fmt.Println(len(problems), "problem")
	// Output: 1 problem
}

// With a device, and without.
func ExampleFirstDevice() {
	for _, devices := range [][]fakekernel.Device{nil, {}, {{NoNode: true}}} {
		kernel := fakekernel.New(fakekernel.Options{Devices: devices})
		d, err := FirstDevice(uverbs.WithSystem(kernel.System()))
		if err == nil {
			fmt.Println(d)
		} else {
			fmt.Println(err)
		}
		kernel.Close()
	}
	// Output:
	// device rxe0
	// none of 0 RDMA devices can be used here: see rdma-ping doctor
	// none of 1 RDMA devices can be used here: see rdma-ping doctor
}

package doctor_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"github.com/pureverbs/rdma/doctor"
	"github.com/pureverbs/rdma/internal/fakekernel"
)

// A program that has failed to connect says why. Here the device node is missing.
func ExampleExamine() {
	root, _ := os.MkdirTemp("", "")
	defer os.RemoveAll(root)
	k := fakekernel.New(fakekernel.Options{Root: root, Devices: []fakekernel.Device{{NoNode: true}}}) // programs leave System out
	defer k.Close()

	report, err := doctor.Examine(context.Background(), doctor.Options{
		Addr:   netip.MustParseAddr("10.9.0.1"),
		Memory: 1 << 20,
		System: k.System(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range report.Findings {
		fmt.Printf("%s %s: %s: %s\n", f.Severity, f.Code, f.Object, f.What)
		for _, fix := range f.Fixes {
			fmt.Printf("  %s: %s\n", fix.Where, fix.Command)
		}
	}
	// Output:
	// error no-node: device rxe0: the kernel has device rxe0 but /dev/infiniband/uverbs0 is not here
	//   here, as root: mkdir -p /dev/infiniband && mknod -m 666 /dev/infiniband/uverbs0 c 231 192
}

package discover

import (
	"errors"
	"fmt"
	"testing"
)

// TestHost runs on whatever this machine is: a list or an error of the package,
// and no descriptor of a device (RW-09) since none is opened.
func TestHost(t *testing.T) {
	s := Host()
	devs, err := s.Devices()
	var e *Error
	if err != nil && !errors.As(err, &e) {
		t.Errorf("Devices: got error %#v, want an *Error", err)
	}
	t.Logf("%d devices, %v", len(devs), err)
	for _, d := range devs {
		t.Logf("%+v", d)
	}
	cd, err := s.CM()
	if err != nil && !errors.As(err, &e) {
		t.Errorf("CM: got error %#v, want an *Error", err)
	}
	t.Logf("%+v, %v", cd, err)
	m, err := s.Mode()
	if err != nil && !errors.As(err, &e) {
		t.Errorf("Mode: got error %#v, want an *Error", err)
	}
	t.Logf("%+v, %v", m, err)
}

func ExampleSystem_Devices() {
	devs, err := Host().Devices()
	if errors.Is(err, ErrNoModule) {
		fmt.Println("this kernel has no RDMA:", err)
		return
	}
	for _, d := range devs {
		if d.Reason != nil {
			fmt.Println(d.Name, "cannot be used:", d.Reason)
			continue
		}
		fmt.Println(d.Name, DriverName(d.Driver), d.Node, d.NetDevs)
	}
}

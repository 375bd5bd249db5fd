package discover

import (
	"errors"
	"fmt"

	"github.com/pureverbs/rdma/abi"
)

// Mode is what holds for RDMA in this kernel as a whole.
type Mode struct {
	Exclusive      bool // a device belongs to one network namespace; else all see all devices
	CopyOnFork     bool // registered memory survives fork in the parent (told since Linux 5.13)
	PrivilegedQKey bool // programs may set controlled queue keys (told since Linux 6.7)
	Monitor        bool // device events can be had from netlink (told since Linux 6.12)
}

// Mode asks the kernel for its mode (SYS_GET). Attributes that an older kernel
// does not know are false. Where netlink is refused only Exclusive is told, from
// ib_core's module parameter. No privilege is needed.
func (s *System) Mode() (Mode, error) {
	m, err := s.netlinkMode()
	if err != nil && refused(err) {
		m, err = s.sysfsMode(err)
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return Mode{}, e
	}
	if err != nil {
		return Mode{}, &Error{Op: "read RDMA system mode", Err: err}
	}
	return m, nil
}

func (s *System) netlinkMode() (Mode, error) {
	t, err := s.Netlink()
	if err != nil {
		return Mode{}, err
	}
	defer t.Close()
	b, err := ask(t, abi.RDMA_NLDEV_CMD_SYS_GET, nil)
	if err != nil {
		return Mode{}, err
	}
	return parseMode(b)
}

func (s *System) sysfsMode(cause error) (Mode, error) {
	shared, err := readValue(s.path("sys/module/ib_core/parameters/netns_mode"))
	switch {
	case err != nil && !s.exists("sys/class/infiniband"):
		return Mode{}, noRDMA("read RDMA system mode", cause)
	case err != nil:
		return Mode{}, err
	case shared != "Y" && shared != "N":
		return Mode{}, fmt.Errorf("netns_mode of ib_core is %q", shared)
	}
	return Mode{Exclusive: shared == "N"}, nil
}

package discover

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/mdlayher/netlink"

	"github.com/pureverbs/rdma/abi"
)

// maxIfName is the longest name of an interface and of a link type.
const maxIfName = 15

// AddLink creates the software device name of type typ ("rxe" or "siw") on the
// network interface netdev of the calling thread's namespace. It needs
// CAP_NET_ADMIN in the initial user namespace. The kernel loads the module of
// the type if it can. Errors: fs.ErrExist, ErrNoPermission, ErrNoModule,
// ErrNoInterface. Linux 5.1 (RDMA_NLDEV_CMD_NEWLINK).
func (s *System) AddLink(name, typ, netdev string) error {
	object := fmt.Sprintf("%s of type %s on %s", name, typ, netdev)
	if err := checkLink(name, typ, netdev); err != nil {
		return &Error{Op: "add link", Object: object, Err: err}
	}
	t, err := s.Netlink()
	if err == nil {
		defer t.Close()
		err = command(t, abi.RDMA_NLDEV_CMD_NEWLINK, func(ae *netlink.AttributeEncoder) {
			ae.String(abi.RDMA_NLDEV_ATTR_DEV_NAME, name)
			ae.String(abi.RDMA_NLDEV_ATTR_LINK_TYPE, typ)
			ae.String(abi.RDMA_NLDEV_ATTR_NDEV_NAME, netdev)
		})
	}
	if err == nil {
		return nil
	}
	e := explainLink(err)
	e.Op, e.Object = "add link", object
	switch {
	case errors.Is(err, syscall.EEXIST):
		e.Detail = "a device of that name, or one of that type on that interface, exists"
	case errors.Is(err, syscall.ENODEV):
		e.Kind = ErrNoInterface
		e.Detail = "there is no interface " + netdev + " in this network namespace"
	case errors.Is(err, syscall.EINVAL):
		e.Kind = ErrNoModule
		e.Detail = "the kernel does not know the link type, or the interface does not suit it"
		e.Next = "as root: modprobe rdma_" + typ
		if typ == "siw" {
			e.Next = "as root: modprobe siw"
		}
	case errors.Is(err, syscall.EPERM) && typ == "rxe":
		e.Detail += ", and rxe cannot be put on a VLAN interface"
	}
	return e
}

// checkLink refuses names that the kernel would cut or misread.
func checkLink(name, typ, netdev string) error {
	if err := validName(name); err != nil {
		return err
	}
	if strings.Contains(name, "%") {
		return fmt.Errorf("%q is not a device name: the kernel takes no %%", name)
	}
	for _, n := range []string{typ, netdev} {
		if err := validName(n); err != nil || len(n) > maxIfName {
			return fmt.Errorf("%q is not the name of a link type or interface", n)
		}
	}
	return nil
}

// DelLink deletes the software device name. It needs CAP_NET_ADMIN in the initial
// user namespace. The kernel waits until every program has closed the device:
// close contexts first, or DelLink hangs. Errors: ErrNoDevice with the names
// that there are, ErrNoPermission. Linux 5.1 (RDMA_NLDEV_CMD_DELLINK).
func (s *System) DelLink(name string) error {
	t, err := s.Netlink()
	if err == nil {
		defer t.Close()
		err = delLink(t, name)
	}
	if err == nil {
		return nil
	}
	e := explainLink(err)
	e.Op, e.Object = "delete link", name
	if errors.Is(err, syscall.EINVAL) {
		e.Detail = "the device is gone, or its driver does not let links be deleted (only rxe, siw and their like do)"
	}
	return e
}

// delLink finds the device by name and deletes it by index.
func delLink(t Transport, name string) error {
	devs, err := dumpDevices(t)
	if err != nil {
		return err
	}
	d, err := Find(devs, name)
	if err != nil {
		return err
	}
	return command(t, abi.RDMA_NLDEV_CMD_DELLINK, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, uint32(d.Index))
	})
}

// explainLink explains what adding and deleting have in common.
func explainLink(err error) *Error {
	e := &Error{Err: err}
	switch {
	case errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES):
		e.Kind = ErrNoPermission
		e.Detail = "it needs CAP_NET_ADMIN on the host"
		e.Next = "run it as root, outside of a user namespace"
	case errors.Is(err, syscall.EPROTONOSUPPORT):
		e = noRDMA("", err)
	}
	return e
}

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"syscall"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/rdmacm"
)

// badNode explains why a node cannot be used: of a device or of rdma_cm.
func (e *examination) badNode(object string, err error) Finding {
	var d *discover.Error
	if !errors.As(err, &d) {
		return e.notOpened(object, "", err)
	}
	f := Finding{Severity: Error, Object: object, What: d.Detail}
	switch {
	case errors.Is(err, discover.ErrNoNode):
		f.Code = NoNode
		f.Fixes = append(e.passNode(d.Node), Fix{hereRoot, fmt.Sprintf("mkdir -p %s && %s", path.Dir(d.Node), mknod(d))})
	case errors.Is(err, discover.ErrWrongNode):
		f.Code = WrongNode
		f.Fixes = append(e.passNode(d.Node), Fix{hereRoot, fmt.Sprintf("rm %s && %s", d.Node, mknod(d))})
	case errors.Is(err, discover.ErrNoPermission) && errors.Is(err, syscall.EPERM):
		f.Code = DeviceCgroup
		f.Fixes = append(e.passNode(d.Node), Fix{"in the service's unit", "DeviceAllow=" + d.Node + " rw"})
	case errors.Is(err, discover.ErrNoPermission):
		f.Code = NoPermission
		f.What = fmt.Sprintf("%s may not be read and written by %s", d.Node, e.facts.user)
		f.Fixes = []Fix{{hereRoot, "chmod 666 " + d.Node}}
	default:
		return e.notOpened(object, d.Node, err)
	}
	f.Why = f.Code.why()
	return f
}

func mknod(d *discover.Error) string {
	return fmt.Sprintf("mknod -m 666 %s c %d %d", d.Node, d.Dev.Major(), d.Dev.Minor())
}

// passNode gives a node to a container.
func (e *examination) passNode(node string) []Fix {
	return e.facts.starting("--device "+node, "resources: {limits: {DEVICE-PLUGIN-RESOURCE: 1}}")
}

// notOpened explains a node that looks right and does not open.
func (e *examination) notOpened(object, node string, err error) Finding {
	f := Finding{Severity: Error, Code: NotOpened, Object: object, What: err.Error(), Fixes: []Fix{}}
	if errors.Is(err, fs.ErrPermission) && node != "" {
		f.Code = NoPermission
		f.What = fmt.Sprintf("%s may be read and written, and yet opening it is refused: its file system is mounted with nodev, or a security module objects", node)
		f.Fixes = []Fix{{hereRoot, "mount -o remount,dev $(stat -c %m " + node + ")"}}
	}
	f.Why = f.Code.why()
	return f
}

// checkCM looks for the connection manager and opens it.
func (e *examination) checkCM() {
	cm, err := e.System.CM()
	switch {
	case errors.Is(err, discover.ErrNoModule):
		e.check(false, "rdma_cm", "", "module rdma_ucm is not loaded")
		e.find(e.noModule("rdma_ucm", "the kernel's connection manager for programs is not there: rdma_ucm is not loaded"))
		return
	case err != nil:
		e.find(e.notOpened("rdma_cm", "", err))
		return
	case cm.Reason != nil:
		e.check(false, "rdma_cm", "", "node "+cm.Node)
		e.find(e.badNode("rdma_cm", cm.Reason))
		return
	}
	detail := fmt.Sprintf("ABI version %d, node %s", cm.ABI, cm.Node)
	ch, err := rdmacm.NewEventChannel(e.cmOptions())
	e.check(err == nil, "rdma_cm", "", detail)
	if err != nil {
		e.find(e.notOpened("rdma_cm", cm.Node, err))
		return
	}
	ch.Close()
}

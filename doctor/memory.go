package doctor

import (
	"fmt"
	"os"

	"github.com/pureverbs/rdma/uverbs"
)

// checkMemory compares the limit with the need, as the kernel does: in pages, those of this
// process, and CAP_IPC_LOCK counts in the first user namespace only (ib_umem_get of
// core/umem.c asks capable(), not ns_capable()). Then it tries.
func (e *examination) checkMemory() {
	f := &e.facts
	free := f.ipcLock && !f.userNS
	short := !free && f.memlock.soft != unlimited && pages(uint64(e.Memory)) > f.memlock.soft/uint64(os.Getpagesize())
	detail := fmt.Sprintf("%s may be locked, %d bytes are needed", f.memlock, e.Memory)
	switch {
	case free:
		detail += "; CAP_IPC_LOCK lifts the limit"
	case f.ipcLock:
		detail += "; CAP_IPC_LOCK is there and does not count, as it is that of a user namespace"
	}
	if short {
		e.check(false, "memory", "", detail)
		e.find(e.memlock())
		return
	}
	err := e.register()
	e.check(err == nil, "memory", "", detail)
	if err != nil {
		e.find(Finding{
			Severity: Error, Code: NotRegistered, Object: "memory", What: err.Error(), Why: NotRegistered.why(),
			Fixes: []Fix{{here, "ask for less memory at once"}},
		})
	}
}

func (l limit) String() string {
	if l.soft == unlimited {
		return "any number of bytes"
	}
	return fmt.Sprintf("%d bytes", l.soft)
}

func pages(bytes uint64) uint64 {
	size := uint64(os.Getpagesize())
	return (bytes + size - 1) / size
}

func (e *examination) memlock() Finding {
	f := Finding{Severity: Error, Code: Memlock, Object: "memory", Why: Memlock.why()}
	f.What = fmt.Sprintf("%d bytes are to be registered, and the limit on locked memory (RLIMIT_MEMLOCK) is %d bytes", e.Memory, e.facts.memlock.soft)
	if e.facts.ipcLock {
		f.What += "; CAP_IPC_LOCK does not help: it is that of a user namespace, and the kernel wants it in the first one"
	}
	switch hard := e.facts.memlock.hard; {
	case hard == unlimited:
		f.Fixes = append(f.Fixes, Fix{"here, in the shell that starts the program", "ulimit -l unlimited"})
	case pages(uint64(e.Memory)) <= hard/uint64(os.Getpagesize()):
		f.Fixes = append(f.Fixes, Fix{"here, in the shell that starts the program", fmt.Sprintf("ulimit -l %d", hard>>10)})
	}
	f.Fixes = append(f.Fixes, e.facts.starting("--ulimit memlock=-1:-1", "securityContext: {capabilities: {add: [IPC_LOCK]}}  # for root; others need a higher limit from the runtime")...)
	if e.facts.container == onHost {
		f.Fixes = append(f.Fixes,
			Fix{"here, as root, before logging in again", "echo '* - memlock unlimited' >> /etc/security/limits.conf"},
			Fix{"in the service's unit", "LimitMEMLOCK=infinity"})
	}
	return f
}

// register registers as much as the program will, on the first device that is well.
func (e *examination) register() error {
	for _, p := range e.devices {
		if p.ctx == nil || p.progress() < len(order) {
			continue
		}
		pd, err := p.ctx.AllocPD()
		if err != nil {
			return err
		}
		defer pd.Close()
		mr, err := pd.AllocMR(e.Memory, uverbs.AccessLocalWrite)
		if err != nil {
			return err
		}
		return mr.Close()
	}
	return nil
}

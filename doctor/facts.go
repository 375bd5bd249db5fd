package doctor

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pureverbs/rdma/internal/uapi"
)

// facts are what /proc and the file system say about this process. All of it may be missing:
// then less is known, and nothing is claimed.
type facts struct {
	release   string          // of the kernel, "" if unknown
	modules   map[string]bool // that are loaded; nil if unknown
	user      string          // "user 65534"
	seccomp   bool            // a filter looks at system calls
	ipcLock   bool            // CAP_IPC_LOCK is in the effective set
	userNS    bool            // in a user namespace other than the first
	container container
	memlock   limit
}

// container is what kind of container the process is in.
type container string

const (
	onHost       container = ""
	inContainer  container = "container"
	inKubernetes container = "Kubernetes pod"
)

// limit is a resource limit in bytes.
type limit struct{ soft, hard uint64 }

const unlimited = math.MaxUint64

// The numbers of the first namespaces are fixed: include/linux/proc_ns.h (PROC_USER_INIT_INO,
// PROC_PID_INIT_INO).
const (
	firstUserNS = "user:[4026531837]"
	firstPIDNS  = "pid:[4026531836]"
)

// capIPCLock is the number of CAP_IPC_LOCK in linux/capability.h.
const capIPCLock = 14

// readFacts reads what there is under the root.
func readFacts(root string) facts {
	at := func(path string) string { return filepath.Join(root, "/", path) }
	f := facts{memlock: limit{unlimited, unlimited}, user: "this user"}
	f.release = strings.TrimSpace(read(at("proc/sys/kernel/osrelease")))
	f.modules = loaded(read(at("proc/modules")))
	status := read(at("proc/self/status"))
	if ids := strings.Fields(field(status, "Uid:")); len(ids) > 1 { // real, effective, ...
		f.user = "user " + ids[1]
	}
	f.seccomp = field(status, "Seccomp:") == "2"
	caps, _ := strconv.ParseUint(field(status, "CapEff:"), 16, 64)
	f.ipcLock = caps&(1<<capIPCLock) != 0
	if ns, err := os.Readlink(at("proc/self/ns/user")); err == nil {
		f.userNS = ns != firstUserNS
	}
	f.container = containerOf(at)
	switch l, ok := parseMemlock(read(at("proc/self/limits"))); {
	case ok:
		f.memlock = l
	case root == "":
		if soft, limited := uapi.MemlockLimit(); limited {
			f.memlock = limit{soft, soft}
		}
	}
	return f
}

func read(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// field is the value of a line of /proc/self/status.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// loaded reads /proc/modules, which does not know of what is built in.
func loaded(text string) map[string]bool {
	if text == "" {
		return nil
	}
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, " ")
		names[name] = true
	}
	return names
}

// parseMemlock reads the line of /proc/self/limits.
func parseMemlock(text string) (l limit, ok bool) {
	words := strings.Fields(field(text, "Max locked memory"))
	if len(words) < 2 {
		return l, false
	}
	l.soft, ok = parseLimit(words[0])
	hard, okHard := parseLimit(words[1])
	l.hard = hard
	return l, ok && okHard
}

func parseLimit(text string) (uint64, bool) {
	if text == "unlimited" {
		return unlimited, true
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}

// containerOf goes by what the runtimes leave behind, and by the namespace of processes.
func containerOf(at func(string) string) container {
	exists := func(path string) bool {
		_, err := os.Stat(at(path))
		return err == nil
	}
	if exists("var/run/secrets/kubernetes.io") || strings.Contains(read(at("proc/self/cgroup")), "/kubepods") {
		return inKubernetes
	}
	if slices.ContainsFunc([]string{".dockerenv", "run/.containerenv"}, exists) {
		return inContainer
	}
	if ns, err := os.Readlink(at("proc/self/ns/pid")); err == nil && ns != firstPIDNS {
		return inContainer
	}
	return onHost
}

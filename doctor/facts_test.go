package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree makes files, and links where the name is one of a namespace.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case strings.Contains(path, "/ns/"):
			err = os.Symlink(text, path)
		default:
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestFacts(t *testing.T) {
	nothing := facts{memlock: limit{unlimited, unlimited}, user: "this user"}
	with := func(change func(*facts)) facts {
		f := nothing
		change(&f)
		return f
	}
	for name, tt := range map[string]struct {
		files map[string]string
		want  facts
	}{
		"nothing known": {nil, nothing},
		"all": {map[string]string{
			"proc/sys/kernel/osrelease": "6.1.0\n",
			"proc/modules":              "ib_core 1 0 - Live 0x0\n",
			"proc/self/status":          "Name:\tx\nUid:\t1\t2\t3\t4\nCapEff:\t0000000000004000\nSeccomp:\t2\n",
			"proc/self/limits":          "Limit  Soft\nMax locked memory         8388608              unlimited            bytes     \n",
			"proc/self/ns/user":         "user:[4026532000]", "proc/self/ns/pid": "pid:[4026532001]",
		}, facts{release: "6.1.0", modules: map[string]bool{"ib_core": true}, user: "user 2", seccomp: true, ipcLock: true,
			userNS: true, container: inContainer, memlock: limit{8 << 20, unlimited}}},
		"first namespaces, strict seccomp, other capabilities": {map[string]string{
			"proc/self/status":  "CapEff:\tffffffffffffbfff\nSeccomp:\t1\n",
			"proc/self/ns/user": "user:[4026531837]", "proc/self/ns/pid": "pid:[4026531836]",
		}, nothing},
		"docker":     {map[string]string{".dockerenv": ""}, with(func(f *facts) { f.container = inContainer })},
		"podman":     {map[string]string{"run/.containerenv": ""}, with(func(f *facts) { f.container = inContainer })},
		"pod":        {map[string]string{"var/run/secrets/kubernetes.io/x": ""}, with(func(f *facts) { f.container = inKubernetes })},
		"cgroup v1":  {map[string]string{"proc/self/cgroup": "4:devices:/kubepods/burstable/pod1\n"}, with(func(f *facts) { f.container = inKubernetes })},
		"odd limits": {map[string]string{"proc/self/limits": "Max locked memory\nMax locked memory x y bytes\n"}, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			got := readFacts(tree(t, tt.files))
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(facts{}, limit{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestMemlock: whether a limit is too low, and what is said of CAP_IPC_LOCK.
func TestMemlock(t *testing.T) {
	page := uint64(os.Getpagesize())
	for _, tt := range []struct {
		name  string
		facts facts
		need  uint64
		fixes []string // how they begin; nil if all is well
		says  string
	}{
		{"no limit", facts{memlock: limit{unlimited, unlimited}}, 1 << 30, nil, ""},
		{"just enough", facts{memlock: limit{2 * page, unlimited}}, 2 * page, nil, ""},
		{"a page is a page", facts{memlock: limit{2 * page, unlimited}}, 2*page + 1, []string{"ulimit -l unlimited", "echo", "LimitMEMLOCK"}, "RLIMIT_MEMLOCK"},
		{"hard limit is higher", facts{memlock: limit{page, 1 << 20}}, 2 * page, []string{"ulimit -l 1024", "echo", "LimitMEMLOCK"}, ""},
		{"hard limit is low too", facts{memlock: limit{page, page}}, 2 * page, []string{"echo", "LimitMEMLOCK"}, ""},
		{"capability", facts{memlock: limit{page, page}, ipcLock: true}, 2 * page, nil, ""},
		{"capability that does not count", facts{memlock: limit{page, page}, ipcLock: true, userNS: true, container: inContainer}, 2 * page,
			[]string{"docker run --ulimit memlock=-1:-1"}, "CAP_IPC_LOCK does not help"},
		{"pod", facts{memlock: limit{page, page}, container: inKubernetes}, 2 * page, []string{"securityContext"}, ""},
	} {
		e := &examination{facts: tt.facts, Options: Options{Memory: int(tt.need)}}
		e.checkMemory()
		if len(e.report.Checks) != 1 || e.report.Checks[0].OK != (tt.fixes == nil) || len(e.report.Findings) != min(1, len(tt.fixes)) {
			t.Errorf("%s: got %+v", tt.name, e.report)
			continue
		}
		if tt.fixes == nil {
			continue
		}
		f := e.report.Findings[0]
		if len(f.Fixes) != len(tt.fixes) || f.Code != Memlock || !strings.Contains(f.What, tt.says) {
			t.Errorf("%s: got %+v", tt.name, f)
			continue
		}
		for i, begin := range tt.fixes {
			if !strings.HasPrefix(f.Fixes[i].Command, begin) {
				t.Errorf("%s: fix %d is %q, want %q", tt.name, i, f.Fixes[i].Command, begin)
			}
		}
	}
}

// TestCodes: every code has a place in the order and says why it matters, and the page for
// people names it.
func TestCodes(t *testing.T) {
	page, err := os.ReadFile("../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("report.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), ` Code = "`); n != len(order) {
		t.Errorf("%d codes are declared, %d have a place", n, len(order))
	}
	for _, c := range order {
		if c.why() == "" {
			t.Errorf("%s does not say why it matters", c)
		}
		if !strings.Contains(string(page), "| `"+string(c)+"` |") {
			t.Errorf("docs/doctor.md does not have %s", c)
		}
	}
}

func TestOrder(t *testing.T) {
	r := Report{Findings: []Finding{
		{Note, NoNode, "a", "", "", nil}, {Warning, SmallMTU, "b", "", "", nil}, {Error, Memlock, "c", "", "", nil},
		{Error, NoNode, "d", "", "", nil}, {Error, NoNode, "e", "", "", nil}, {Warning, NetlinkRefused, "f", "", "", nil},
	}}
	r.sort()
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.Object)
	}
	if want := []string{"d", "e", "c", "f", "b", "a"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

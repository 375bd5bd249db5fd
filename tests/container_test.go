//go:build linux

package tests

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/doctor"
	"github.com/pureverbs/rdma/internal/testutil"
)

// imageFile is what make image builds.
const imageFile = "../bin/rdma-ping.oci.tar"

// image is the image of one platform: its root file system, and how it is started.
type image struct {
	layers     [][]byte // tar archives
	entrypoint string
}

// readImage reads the image as docker load does, by manifest.json.
func readImage(t *testing.T) image {
	t.Helper()
	f, err := os.Open(imageFile)
	if err != nil {
		testutil.Skip(t, "the image", "run: make image")
	}
	defer f.Close()
	files := untar(t, f)
	var saved []struct {
		Config           string
		RepoTags, Layers []string
	}
	testutil.Must(t, json.Unmarshal(files["manifest.json"], &saved))
	for _, s := range saved {
		var config struct {
			Architecture string
			Config       struct{ Entrypoint []string }
		}
		testutil.Must(t, json.Unmarshal(files[s.Config], &config))
		if config.Architecture != runtime.GOARCH {
			continue
		}
		i := image{entrypoint: strings.Join(config.Config.Entrypoint, " ")}
		for _, l := range s.Layers {
			z, err := gzip.NewReader(bytes.NewReader(files[l]))
			testutil.Must(t, err)
			layer, err := io.ReadAll(z)
			testutil.Must(t, err)
			i.layers = append(i.layers, layer)
		}
		return i
	}
	if runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64" {
		t.Fatalf("there is no image for %s among %d", runtime.GOARCH, len(saved))
	}
	t.Skip("make image builds for amd64 and arm64 only")
	return image{}
}

// untar reads the regular files of an archive.
func untar(t *testing.T, from io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		testutil.Must(t, err)
		if h.Typeflag != tar.TypeReg {
			continue
		}
		files[path.Clean(h.Name)], err = io.ReadAll(r)
		testutil.Must(t, err)
	}
}

// pod is a container of the image, with these nodes.
func (i image) pod(t *testing.T, nodes ...string) *pod {
	t.Helper()
	p := emptyPod(t)
	for _, l := range i.layers {
		for name, data := range untar(t, bytes.NewReader(l)) {
			testutil.Must(t, os.WriteFile(p.path(name), data, 0o755))
		}
	}
	entries, err := os.ReadDir(p.root)
	testutil.Must(t, err)
	if len(entries) != 1 || "/"+entries[0].Name() != i.entrypoint {
		t.Fatalf("the image has %v, and is started by %q", entries, i.entrypoint)
	}
	p.furnish(nodes...)
	return p
}

// serve runs a server in the pod until the end of the test.
func (p *pod) serve() {
	p.t.Helper()
	cmd := p.command("serve")
	out, err := cmd.StdoutPipe()
	testutil.Must(p.t, err)
	cmd.Stderr = cmd.Stdout
	testutil.Must(p.t, cmd.Start())
	p.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line := make([]byte, 256)
	n, err := out.Read(line)
	if err != nil || !strings.HasPrefix(string(line[:n]), "listening") {
		p.t.Fatalf("the server says %q, %v", line[:n], err)
	}
	go io.Copy(io.Discard, out)
}

// TestContainer runs the image as a container runtime would, with nothing in it but the
// program and nothing given to it but nodes: a server in one container, clients in others.
func TestContainer(t *testing.T) {
	testutil.Lab(t, "Container")
	d := testutil.Device(t)
	img, node := readImage(t), filepath.Base(d.Path())
	img.pod(t, "rdma_cm", node).serve()
	ping := func(p *pod, args ...string) error {
		cmd := p.command(append(args, "-c", "3", "-i", "20ms", "-W", "5s", labIPv4)...)
		defer time.AfterFunc(30*time.Second, func() {
			if cmd.Process != nil {
				cmd.Process.Kill()
			}
		}).Stop()
		out, err := cmd.CombinedOutput()
		t.Logf("%q: %v\n%s", cmd.Args, err, out)
		return err
	}
	t.Run("root", func(t *testing.T) {
		testutil.Must(t, ping(img.pod(t, "rdma_cm", node)))
	})
	t.Run("nobody", func(t *testing.T) {
		p := img.pod(t, "rdma_cm", node)
		p.user = &syscall.Credential{Uid: 65532, Gid: 65532}
		testutil.Must(t, ping(p))
		testutil.Must(t, ping(p, "--rping"))
	})
	t.Run("user namespace", func(t *testing.T) {
		p := img.pod(t, "rdma_cm", node)
		p.owned = true // as rootless podman
		testutil.Must(t, ping(p))
	})
	t.Run("read-only", func(t *testing.T) {
		p := img.pod(t, "rdma_cm", node)
		p.readOnly()
		testutil.Must(t, ping(p))
	})
	t.Run("devices", func(t *testing.T) { containerDevices(t, img.pod(t, "rdma_cm", node), d.Name()) })
	t.Run("doctor", func(t *testing.T) { containerDoctor(t, img, node, "device "+d.Name()) })
}

// readOnly makes the root file system so, as docker run --read-only: the mounts below stay.
func (p *pod) readOnly() {
	p.t.Helper()
	testutil.Must(p.t, unix.Mount(p.root, p.root, "", unix.MS_BIND|unix.MS_REC, ""))
	p.t.Cleanup(func() { unix.Unmount(p.root, unix.MNT_DETACH) })
	testutil.Must(p.t, unix.Mount("", p.root, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	if err := os.WriteFile(p.path("x"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
		p.t.Fatalf("the root file system can be written to: %v", err)
	}
}

// containerDevices: the device whose node is there can be used, and no other.
func containerDevices(t *testing.T, p *pod, name string) {
	out, err := p.command("devices", "--json").Output()
	testutil.Must(t, err)
	var list []struct {
		Name, Reason string
		Usable       bool
		Ports        []struct {
			GIDs []struct{ IPv4, Interface string }
		}
	}
	testutil.Must(t, json.Unmarshal(out, &list))
	for _, d := range list {
		if d.Usable != (d.Name == name) || d.Usable == (d.Reason != "") {
			t.Errorf("%s: usable is %v, reason %q", d.Name, d.Usable, d.Reason)
		}
		if d.Usable && testutil.Device(t).Protocol() == "roce" &&
			!slices.Contains(d.Ports[0].GIDs, struct{ IPv4, Interface string }{labIPv4, "dum0"}) {
			t.Errorf("%s: %s is not among the GIDs: %+v", d.Name, labIPv4, d.Ports)
		}
	}
	if len(list) < 2 {
		t.Errorf("%d devices, want those without a node as well", len(list))
	}
}

// containerDoctor takes single things away; how each is mended is in TestDoctor.
func containerDoctor(t *testing.T, img image, node, device string) {
	both := []string{"rdma_cm", node}
	for _, tt := range []struct {
		name   string
		nodes  []string
		change func(*pod)
		args   []string
		code   doctor.Code
		object string
	}{
		{"no uverbs node", both[:1], func(*pod) {}, nil, doctor.NoNode, device},
		{"no rdma_cm node", both[1:], func(*pod) {}, nil, doctor.NoNode, "rdma_cm"},
		{"own network", both, func(p *pod) { p.flags = unix.CLONE_NEWNET }, nil, doctor.ForeignNamespace, device},
		{"permission", both, func(p *pod) {
			p.user = &syscall.Credential{Uid: 65532, Gid: 65532}
			spoilNode(p, node)
		}, nil, doctor.NoPermission, device},
		{"memlock as nobody", both, func(p *pod) {
			p.user = &syscall.Credential{Uid: 65532, Gid: 65532}
			lowMemlock(p.t)
		}, []string{"-s", "1M"}, doctor.Memlock, "memory"},
		{"memlock in a user namespace", both, func(p *pod) {
			p.owned = true
			lowMemlock(p.t)
		}, []string{"-s", "1M"}, doctor.Memlock, "memory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := img.pod(t, tt.nodes...)
			tt.change(p)
			first(t, p.doctor(append(tt.args, labIPv4)...), tt.code, tt.object)
		})
	}
	t.Run("nothing", func(t *testing.T) {
		if r := img.pod(t, both...).doctor(labIPv4); !r.Healthy() {
			t.Errorf("nothing is missing, and yet: %+v", r)
		}
	})
}

// spoilNode puts a node of the same device in the place of one, for root alone.
func spoilNode(p *pod, node string) {
	at := p.path("dev/infiniband/" + node)
	var st unix.Stat_t
	testutil.Must(p.t, unix.Stat("/dev/infiniband/"+node, &st))
	testutil.Must(p.t, unix.Unmount(at, unix.MNT_DETACH))
	testutil.Must(p.t, os.Remove(at))
	testutil.Must(p.t, unix.Mknod(at, unix.S_IFCHR|0o600, int(st.Rdev)))
}

// lowMemlock bounds locked memory of what is started, until the end of the test.
func lowMemlock(t *testing.T) {
	t.Helper()
	var old unix.Rlimit
	testutil.Must(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old))
	testutil.Must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: memlockBytes, Max: old.Max}))
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old) })
}

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// TestImage builds the image, reads it as a runtime does, and builds it once more.
func TestImage(t *testing.T) {
	o := options{root: "../..", out: filepath.Join(t.TempDir(), "sub", "image.tar"), platforms: []string{"amd64", "arm64"}}
	if err := build(o); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(o.out)
	if err != nil {
		t.Fatal(err)
	}
	images, err := open(first)
	if err != nil {
		t.Fatal(err)
	}
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		image, ok := images[arch]
		if !ok {
			t.Fatalf("there is no image for %s", arch)
		}
		checkConfig(t, image.config)
		checkProgram(t, image.files, machine)
	}
	if len(images) != 2 {
		t.Errorf("%d images, want 2", len(images))
	}
	if err := build(o); err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(o.out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("built again, the image has other bytes")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(o.out), "*")); len(left) != 1 {
		t.Errorf("left behind: %q", left)
	}
}

func checkConfig(t *testing.T, c v1.Image) {
	t.Helper()
	if diff := cmp.Diff([]string{"/rdma-ping"}, c.Config.Entrypoint); diff != "" || c.Config.Cmd != nil || c.Config.User != "" {
		t.Errorf("command %q, user %q; entrypoint (-want +got)\n%s", c.Config.Cmd, c.Config.User, diff)
	}
	for _, name := range []string{v1.AnnotationTitle, v1.AnnotationDescription, v1.AnnotationLicenses, v1.AnnotationSource} {
		if c.Config.Labels[name] == "" {
			t.Errorf("no label %s", name)
		}
	}
}

// checkProgram: the program is all there is, and it needs nothing else.
func checkProgram(t *testing.T, files map[string][]byte, machine elf.Machine) {
	t.Helper()
	code, ok := files["rdma-ping"]
	if !ok || len(files) != 1 {
		t.Fatalf("the root file system has %d files, want the program alone", len(files))
	}
	path := filepath.Join(t.TempDir(), "rdma-ping")
	if err := os.WriteFile(path, code, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "run", "../static", path).CombinedOutput(); err != nil {
		t.Errorf("not static: %v\n%s", err, out)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Machine != machine {
		t.Errorf("it is a program for %v, want %v", f.Machine, machine)
	}
}

// opened is an image of one platform, as a runtime finds it.
type opened struct {
	config v1.Image
	files  map[string][]byte
}

// open reads a layout and checks what the specification says of it: digests, sizes, media
// types, and that nothing is there that is not referred to. It knows nothing of how the
// layout was made.
func open(archive []byte) (map[string]opened, error) {
	files, err := untar(archive)
	if err != nil {
		return nil, err
	}
	l := reader{files: files, used: map[string]bool{"oci-layout": true, "index.json": true, "manifest.json": true}}
	var version v1.ImageLayout
	var index, all v1.Index
	err = errors.Join(json.Unmarshal(files["oci-layout"], &version), json.Unmarshal(files["index.json"], &index))
	if err != nil || version.Version != "1.0.0" || index.SchemaVersion != 2 || len(index.Manifests) != 1 {
		return nil, fmt.Errorf("layout %+v, index %+v: %w", version, index, err)
	}
	top := index.Manifests[0]
	if top.Annotations["io.containerd.image.name"] != "localhost/rdma-ping:latest" || top.Annotations[v1.AnnotationRefName] != "latest" {
		return nil, fmt.Errorf("it is called %q", top.Annotations)
	}
	if err := l.json(top, v1.MediaTypeImageIndex, &all); err != nil {
		return nil, err
	}
	images, configs := map[string]opened{}, map[string]digest.Digest{}
	for _, d := range all.Manifests {
		image, config, err := l.image(d)
		if err != nil {
			return nil, err
		}
		images[image.config.Architecture], configs[image.config.Architecture] = image, config
	}
	for name := range files {
		if !l.used[name] {
			return nil, fmt.Errorf("%s belongs to nothing", name)
		}
	}
	return images, l.saved(configs)
}

type reader struct {
	files map[string][]byte
	used  map[string]bool
}

func (l *reader) blob(d v1.Descriptor, mediaType string) ([]byte, error) {
	path := "blobs/sha256/" + d.Digest.Encoded()
	data, ok := l.files[path]
	l.used[path] = true
	if !ok || d.Digest.Validate() != nil || int64(len(data)) != d.Size || d.Digest != digest.FromBytes(data) || d.MediaType != mediaType {
		return nil, fmt.Errorf("%s: %d bytes, want %d of that digest; type %s, want %s", path, len(data), d.Size, d.MediaType, mediaType)
	}
	return data, nil
}

func (l *reader) json(d v1.Descriptor, mediaType string, v any) error {
	data, err := l.blob(d, mediaType)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

func (l *reader) image(d v1.Descriptor) (image opened, config digest.Digest, err error) {
	var m v1.Manifest
	if err := l.json(d, v1.MediaTypeImageManifest, &m); err != nil {
		return image, "", err
	}
	if err := l.json(m.Config, v1.MediaTypeImageConfig, &image.config); err != nil {
		return image, "", err
	}
	p := d.Platform
	if p == nil || p.OS != "linux" || !cmp.Equal(*p, image.config.Platform) || len(m.Layers) != 1 || len(image.config.RootFS.DiffIDs) != 1 {
		return image, "", fmt.Errorf("manifest for %+v of %+v with config %+v", p, m, image.config)
	}
	packed, err := l.blob(m.Layers[0], v1.MediaTypeImageLayerGzip)
	if err != nil {
		return image, "", err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return image, "", err
	}
	layer, err := io.ReadAll(z)
	if err == nil && digest.FromBytes(layer) != image.config.RootFS.DiffIDs[0] {
		err = fmt.Errorf("the layer for %s is not the one of its config", p.Architecture)
	}
	if err != nil {
		return image, "", err
	}
	image.files, err = untar(layer)
	return image, m.Config.Digest, err
}

// saved checks manifest.json, which names the same.
func (l *reader) saved(configs map[string]digest.Digest) error {
	var list []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(l.files["manifest.json"], &list); err != nil {
		return err
	}
	for _, s := range list {
		_, arch, _ := strings.Cut(s.RepoTags[0], "localhost/rdma-ping:")
		if len(s.Layers) != 1 || !l.used[s.Layers[0]] || s.Config != "blobs/sha256/"+configs[arch].Encoded() {
			return fmt.Errorf("manifest.json says %+v", s)
		}
	}
	if len(list) != len(configs) {
		return fmt.Errorf("manifest.json has %d images, want %d", len(list), len(configs))
	}
	return nil
}

// untar reads the files of an archive: they must be root's, and no others may write them.
func untar(archive []byte) (map[string][]byte, error) {
	files := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return files, nil
		case err != nil:
			return nil, err
		case h.Typeflag == tar.TypeDir:
			continue
		case h.Typeflag != tar.TypeReg || h.Uid != 0 || h.Gid != 0 || h.Mode&0o7022 != 0:
			return nil, fmt.Errorf("%s is of type %c, mode %o, and belongs to %d", h.Name, h.Typeflag, h.Mode, h.Uid)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			return nil, err
		}
	}
}

// small is an image of programs that are none.
func small(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	err := write(&b, []program{
		{arch: "amd64", code: []byte("one"), version: "v1", revision: "abc", created: created},
		{arch: "arm64", code: []byte("two"), created: created},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestLabels(t *testing.T) {
	images, err := open(small(t))
	if err != nil {
		t.Fatal(err)
	}
	c := images["amd64"].config
	if l := c.Config.Labels; l[v1.AnnotationVersion] != "v1" || l[v1.AnnotationRevision] != "abc" || c.Created.Year() != 2026 {
		t.Errorf("labels %q, of %v", l, c.Created)
	}
	if l := images["arm64"].config.Config.Labels; l[v1.AnnotationTitle] == "" || len(l) != 4 {
		t.Errorf("labels %q", l)
	}
	if got := string(images["arm64"].files["rdma-ping"]); got != "two" {
		t.Errorf("for arm64 there is %q", got)
	}
}

// TestSpoiled: the reader above sees what is wrong, whatever byte of a file it is.
func TestSpoiled(t *testing.T) {
	good := small(t)
	files, err := untar(good)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		at := bytes.Index(good, content)
		for _, offset := range []int{0, len(content) / 2} {
			bad := bytes.Clone(good)
			bad[at+offset] ^= 1
			if _, err := open(bad); err == nil {
				t.Errorf("%s with another byte at %d passed", name, offset)
			}
		}
	}
}

func TestBuildFails(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image.tar")
	if err := build(options{root: "../..", out: out, platforms: []string{"nosuch"}}); err == nil {
		t.Error("built for an architecture that is none")
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a failed build left an image")
	}
}

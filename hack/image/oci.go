package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// reference is the image's name, one that no runtime looks for at a registry.
const reference = "localhost/rdma-ping"

// containerdName is how containerd and podman name an image that they load.
const containerdName = "io.containerd.image.name"

// layout is an OCI image layout that grows.
type layout struct {
	blobs map[digest.Digest][]byte
	saved []savedImage
}

// savedImage is an entry of manifest.json: docker load reads that, and not the layout, where
// images are not kept by containerd. It has no platforms, so each gets a tag.
type savedImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// write writes the layout with the programs as a tar archive.
func write(w io.Writer, programs []program) error {
	l := layout{blobs: map[digest.Digest][]byte{}}
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex}
	for _, p := range programs {
		m, err := l.image(p)
		if err != nil {
			return err
		}
		index.Manifests = append(index.Manifests, m)
	}
	all, err := l.addJSON(v1.MediaTypeImageIndex, index)
	if err != nil {
		return err
	}
	all.Annotations = map[string]string{v1.AnnotationRefName: "latest", containerdName: reference + ":latest"}
	index.Manifests = []v1.Descriptor{all}
	return l.archive(w, index)
}

// image adds the image of one platform and returns its manifest.
func (l *layout) image(p program) (v1.Descriptor, error) {
	layer, err := archiveOf(p)
	if err != nil {
		return v1.Descriptor{}, err
	}
	packed, err := pack(layer)
	if err != nil {
		return v1.Descriptor{}, err
	}
	platform := v1.Platform{OS: "linux", Architecture: p.arch}
	if p.arch == "arm64" {
		platform.Variant = "v8"
	}
	layers := []v1.Descriptor{l.add(v1.MediaTypeImageLayerGzip, packed)}
	config, err := l.addJSON(v1.MediaTypeImageConfig, v1.Image{
		Created: &p.created, Platform: platform,
		Config:  v1.ImageConfig{Entrypoint: []string{"/rdma-ping"}, Env: []string{"PATH=/"}, WorkingDir: "/", Labels: p.labels()},
		RootFS:  v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digestOf(layer)}},
		History: []v1.History{{Created: &p.created, CreatedBy: "make image"}},
	})
	if err != nil {
		return v1.Descriptor{}, err
	}
	manifest, err := l.addJSON(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: config, Layers: layers, Annotations: p.labels(),
	})
	manifest.Platform = &platform
	l.saved = append(l.saved, savedImage{
		Config: blobPath(config.Digest), RepoTags: []string{reference + ":" + p.arch}, Layers: []string{blobPath(layers[0].Digest)},
	})
	return manifest, err
}

func (p *program) labels() map[string]string {
	labels := map[string]string{
		v1.AnnotationTitle:       "rdma-ping",
		v1.AnnotationDescription: "Round trips, bandwidth and diagnosis over RDMA, in one static program",
		v1.AnnotationLicenses:    "BSD-3-Clause",
		v1.AnnotationSource:      "https://github.com/pureverbs/rdma",
	}
	for name, value := range map[string]string{v1.AnnotationVersion: p.version, v1.AnnotationRevision: p.revision} {
		if value != "" {
			labels[name] = value
		}
	}
	return labels
}

// archiveOf is the root file system: the program.
func archiveOf(p program) ([]byte, error) {
	var b bytes.Buffer
	w := archive{tar.NewWriter(&b), p.created}
	err := errors.Join(w.file("rdma-ping", 0o755, p.code), w.Close())
	return b.Bytes(), err
}

func pack(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(data)
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}

func (l *layout) add(mediaType string, data []byte) v1.Descriptor {
	d := digestOf(data)
	l.blobs[d] = data
	return v1.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

func digestOf(data []byte) digest.Digest {
	sum := sha256.Sum256(data)
	return digest.NewDigestFromBytes(digest.SHA256, sum[:])
}

func (l *layout) addJSON(mediaType string, v any) (v1.Descriptor, error) {
	data, err := json.Marshal(v)
	return l.add(mediaType, data), err
}

func blobPath(d digest.Digest) string {
	return path.Join(v1.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

// archive writes all of it, in an order that is always the same.
func (l *layout) archive(w io.Writer, index v1.Index) error {
	a := archive{tar.NewWriter(w), time.Unix(0, 0)}
	for _, f := range []struct {
		name    string
		content any
	}{
		{v1.ImageLayoutFile, v1.ImageLayout{Version: v1.ImageLayoutVersion}},
		{v1.ImageIndexFile, index},
		{"manifest.json", l.saved},
	} {
		data, err := json.Marshal(f.content)
		if err != nil {
			return err
		}
		if err := a.file(f.name, 0o644, data); err != nil {
			return err
		}
	}
	for _, dir := range []string{v1.ImageBlobsDir, path.Join(v1.ImageBlobsDir, digest.SHA256.String())} {
		if err := a.dir(dir); err != nil {
			return err
		}
	}
	for _, d := range slices.Sorted(maps.Keys(l.blobs)) {
		if err := a.file(blobPath(d), 0o644, l.blobs[d]); err != nil {
			return err
		}
	}
	return a.Close()
}

// archive is a tar archive whose files are all root's and of one time.
type archive struct {
	*tar.Writer
	time time.Time
}

func (a archive) file(name string, mode int64, data []byte) error {
	h := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: a.time, Format: tar.FormatUSTAR}
	if err := a.WriteHeader(&h); err != nil {
		return err
	}
	_, err := a.Write(data)
	return err
}

func (a archive) dir(name string) error {
	return a.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: a.time, Format: tar.FormatUSTAR})
}

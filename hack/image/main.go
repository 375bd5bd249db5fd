// Command image builds the container image of rdma-ping: an OCI image layout in a tar file,
// for amd64 and arm64, with the static program and nothing else in it. It needs no daemon,
// no registry and no base image, and gives the same bytes for the same source and toolchain.
//
//	go -C hack run ./image -o ../bin/rdma-ping.oci.tar
package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	o := options{platforms: []string{"amd64", "arm64"}}
	flag.StringVar(&o.out, "o", "../bin/rdma-ping.oci.tar", "`file` to write")
	flag.StringVar(&o.root, "root", "..", "`folder` of the repository")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "image: what is %q?\n", flag.Args())
		os.Exit(2)
	}
	if err := build(o); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Printf("%s: %s for linux/%s\n", o.out, reference+":latest", strings.Join(o.platforms, ", linux/"))
}

type options struct {
	root, out string
	platforms []string // GOARCH
}

// build writes the image, or leaves what was there.
func build(o options) error {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var programs []program
	for _, arch := range o.platforms {
		p, err := compile(o.root, arch, filepath.Join(dir, arch))
		if err != nil {
			return err
		}
		programs = append(programs, p)
	}
	var b bytes.Buffer
	if err := write(&b, programs); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return err
	}
	return replace(o.out, &b)
}

// replace puts the whole content in the place of a file at once.
func replace(path string, content io.Reader) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, content)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// program is rdma-ping for one architecture, and what its build notes about the source.
type program struct {
	arch              string
	code              []byte
	version, revision string    // "" if unknown
	created           time.Time // of the revision; 1970 if unknown
}

// compile builds the program without a path or symbols in it.
func compile(root, arch, out string) (program, error) {
	out, err := filepath.Abs(out)
	if err != nil {
		return program{}, err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "./cmd/rdma-ping")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return program{}, fmt.Errorf("build for %s: %w", arch, err)
	}
	code, err := os.ReadFile(out)
	if err != nil {
		return program{}, err
	}
	p := program{arch: arch, code: code, created: time.Unix(0, 0).UTC()}
	return p, p.identify()
}

func (p *program) identify() error {
	info, err := buildinfo.Read(bytes.NewReader(p.code))
	if err != nil {
		return err
	}
	if info.Main.Version != "(devel)" {
		p.version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			p.revision = s.Value
		case "vcs.time":
			if p.created, err = time.Parse(time.RFC3339, s.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

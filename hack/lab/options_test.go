//go:build linux

package main

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/hack/lab/kernel"
)

func parse(t *testing.T, line string) options {
	t.Helper()
	f := strings.Fields(line)
	o, err := parseOptions(f[0], f[1:], io.Discard)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return o
}

func TestParseOptions(t *testing.T) {
	o := parse(t, "run -kernel 6.12 -run X -v -smp 4 -timeout 7s -bin ./cmd/a -bin ./cmd/b -coverprofile c.out ./uverbs ./tests")
	if o.kernels[0].Debian != "trixie" || o.tests.run != "X" || !o.verbose || o.smp != 4 || o.timeout != 7*time.Second || !o.cover {
		t.Errorf("got %+v", o)
	}
	if d := cmp.Diff([]string{"./cmd/a", "./cmd/b"}, []string(o.commands)); d != "" {
		t.Errorf("-bin: want - got +\n%s", d)
	}
	if d := cmp.Diff([]string{"./uverbs", "./tests"}, o.args); d != "" {
		t.Errorf("packages: want - got +\n%s", d)
	}
	if o := parse(t, "exec -icount -smp 8 -- rping -s -C 1"); o.smp != 1 || !slices.Equal(o.args, []string{"rping", "-s", "-C", "1"}) {
		t.Errorf("exec: got %d CPUs, %q", o.smp, o.args)
	}
	if o := parse(t, "prepare -kernel all"); len(o.kernels) != 4 {
		t.Errorf("all: got %v", o.kernels)
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	for _, line := range []string{
		"run", "exec", "exec --", "run -kernel 4.19 ./x", "shell -kernel all", "run -device mlx5 ./x", "run -device siw -arch arm64 ./x",
		"run -arch mips ./x", "run -arch arm64 -kernel 6.1 ./x", "run -arch s390x -race ./x", "run -arch s390x -cc x.c ./x",
		"exec -device all x", "shell -kernel all",
		"run -timeout 0 ./x", "run -smp 0 ./x", "run -env A ./x", "run -env =1 ./x", "prepare -run X", "run -nonsense ./x",
	} {
		f := strings.Fields(line)
		var said strings.Builder
		if _, err := parseOptions(f[0], f[1:], &said); err == nil || said.Len() == 0 {
			t.Errorf("%s: got error %v and text %q", line, err, &said)
		}
	}
}

func TestPlan(t *testing.T) {
	for line, want := range map[string]string{
		"run ./x":                        "net,rdma,rxe rxe0,rxea,rxeb",
		"run -device siw ./x":            "net,rdma,siw siw0,siwa,siwb",
		"run -arch arm64 ./x":            "net,rdma,rxe rxe0,rxea,rxeb",
		"run -no-device ./x":             "net,rdma,rxe ",
		"run -device all -no-device ./x": "net,rdma,rxe ",
		"run -no-module ./x":             "net ",
	} {
		o := parse(t, line)
		p := o.plan()
		if got := strings.Join(p.Groups, ",") + " " + strings.Join(p.Devices(), ","); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

func TestCells(t *testing.T) {
	for line, want := range map[string]string{
		"run ./x":                                 "6.1/rxe",
		"run -device all ./x":                     "6.1/rxe 6.1/siw",
		"run -kernel all -device all ./x":         "5.10/rxe 5.10/siw 6.1/rxe 6.1/siw 6.12/rxe 6.12/siw newest/rxe newest/siw",
		"run -arch s390x -device all ./x":         "6.12/rxe",
		"prepare -kernel newest -device siw":      "newest/siw",
		"run -no-device -device all -kernel 6.12": "6.12/none",
	} {
		o := parse(t, line+" ./x")
		var got []string
		for _, c := range o.cells() {
			got = append(got, c.kernel.Kernel+"/"+c.device)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
	o := parse(t, "run -device all ./x")
	on := o.on(o.cells()[1])
	if got := on.environment(o.kernels[0]); !slices.Contains(got, "RDMA_LAB_DEVICE=siw") || !slices.Contains(got, "RDMA_LAB_DEVICES=siw0,siwa,siwb") {
		t.Errorf("the second of two: got %q", got)
	}
	if got, want := on.where(o.kernels[0]), "kernel 6.1, siw"; got != want {
		t.Errorf("where: got %q, want %q", got, want)
	}
}

func TestBuildEnvironment(t *testing.T) {
	for line, want := range map[string][]string{
		"run ./x": {"CGO_ENABLED=0", "GOARCH=amd64"}, "run -race ./x": {"CGO_ENABLED=1", "GOARCH=amd64"},
		"run -arch s390x ./x": {"CGO_ENABLED=0", "GOARCH=s390x"},
	} {
		o := parse(t, line)
		if d := cmp.Diff(want, o.goEnv()); d != "" {
			t.Errorf("%s: want - got +\n%s", line, d)
		}
	}
}

func TestEnvironment(t *testing.T) {
	o := parse(t, "run -env A=1 -env B=x=y ./x")
	if env := o.environment(kernel.Suite{}); !slices.Contains(env, "A=1") || !slices.Contains(env, "B=x=y") {
		t.Errorf("got %q", env)
	}
	for line, required := range map[string]bool{"run ./x": true, "run -no-device ./x": false, "run -no-module ./x": false} {
		o := parse(t, line)
		env := o.environment(kernel.Suite{Kernel: "6.1", Arch: "amd64"})
		if got := slices.Contains(env, "RDMA_TEST_REQUIRE=1"); got != required {
			t.Errorf("%s: a missing device is a failure: got %v, want %v", line, got, required)
		}
		if !slices.Contains(env, "RDMA_LAB_KERNEL=6.1") || !slices.Contains(env, "RDMA_LAB=1") || !slices.Contains(env, "RDMA_LAB_ARCH=amd64") {
			t.Errorf("%s: got %q", line, env)
		}
	}
}

func TestTestArgs(t *testing.T) {
	o := parse(t, "run -run A|B -v -cover -testflag -test.benchtime=10x ./x")
	got := o.testArgs("0-x.test", 10*time.Second)
	want := []string{"-test.timeout=9s", "-test.count=1", "-test.paniconexit0", "-test.run=A|B", "-test.v=true",
		"-test.coverprofile=/host/cover/0-x.test", "-test.benchtime=10x"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want - got +\n%s", d)
	}
}

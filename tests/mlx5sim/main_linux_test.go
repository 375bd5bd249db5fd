//go:build amd64 || arm64

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel/sim/simtest"
)

// TestMain: this binary is mlx5sim, too, and some of the programs that run under it.
func TestMain(m *testing.M) {
	if role := os.Getenv("MLX5SIM_ROLE"); role != "" && os.Getenv("RDMA_SIM") == "1" {
		if err := roles[role](os.Args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	simtest.Main(m)
}

// clean is what -v says at the end if the device has nothing left.
const clean = "left: {Contexts:0 PDs:0 MRs:0 CQs:0 QPs:0 SRQs:0 AHs:0 MWs:0 Attached:0 CompChannels:0 AsyncChannels:0 CMFiles:0 CMIDs:0 Maps:0}\n"

// self is the path of this binary for programs under mlx5sim.
const self = "/proc/self/exe"

// listens is a shell function that waits until somebody listens at a port.
const listens = `
	listens() {
		until grep -qi ":$(printf %04x $1) .* 0A " /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done
	}
`

// pair is a shell script in which two ends of a C program play against each other.
func pair(end string, port int) string {
	return fmt.Sprintf(`%[1]s
		%[2]s -p %[3]d & server=$!
		listens %[3]d
		%[2]s -p %[3]d 127.0.0.1 && wait $server`, listens, end, port)
}

// output of a run of mlx5sim.
type output struct {
	out, log string
	status   int
}

// simulate runs a program with flags of mlx5sim besides -v. It has a minute.
func simulate(t *testing.T, flags []string, program ...string) output {
	t.Helper()
	return simulateAs(t, "", flags, program...)
}

// simulateAs runs this binary under mlx5sim if role is not "".
func simulateAs(t *testing.T, role string, flags []string, program ...string) (o output) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args := append(append([]string{"-v"}, flags...), program...)
	if role != "" {
		args = append(append(append([]string{"-v"}, flags...), self), program...)
	}
	cmd := simtest.Command(ctx, t, args...)
	cmd.Env = append(cmd.Env, "MLX5SIM_ROLE="+role)
	return finish(t, cmd)
}

func finish(t *testing.T, cmd *exec.Cmd) (o output) {
	t.Helper()
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	o.out, o.log, o.status = out.String(), log.String(), cmd.ProcessState.ExitCode()
	if o.status < 0 {
		t.Fatalf("mlx5sim %v: %v\n%s%s", cmd.Args, err, o.out, o.log)
	}
	return o
}

// good fails the test unless the program succeeded and left nothing.
func (o *output) good(t *testing.T) {
	t.Helper()
	if o.status != 0 {
		t.Errorf("status %d\n%s%s", o.status, o.out, o.log)
	} else if !bytes.HasSuffix([]byte(o.log), []byte(clean)) {
		t.Errorf("the device was left with things:\n%s", o.log)
	}
}

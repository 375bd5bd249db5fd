package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
)

// TestPlot draws pictures of runs, in place of old ones.
func TestPlot(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	serve(t, k)
	perfServe(t, k)
	for args, texts := range map[string][]string{
		"-q -c 50 -i 0":                   {"RDMA round trips to 10.9.0.1 over rxe0", "56 bytes of data, 50 sent, 50 answered", "p99.9 = "},
		"--json -c 1":                     {"56 bytes of data, 1 sent"},
		"perf lat -c 50":                  {"RDMA latency of send (RC) to 10.9.0.1:18515 over rxe0", "64 bytes, 50 messages", "half round trip in microseconds"},
		"perf lat -c 20 -o read":          {"latency of read", ">round trip in microseconds"},
		"perf lat -c 20 -s 8k,2..64":      {"7 sizes from 2 bytes to 8 KiB, 20 messages each", ">p50<", ">p99<", "size of a message", ">2 B<", ">8 KiB<"},
		"perf lat -c 20 -s 64,64":         {"64 bytes, 40 messages"},
		"perf bw -c 20 -s 1k..16k":        {"RDMA bandwidth of send (RC)", "5 sizes from 1 KiB to 16 KiB", "Gb/s (1e9 bits a second)"},
		"perf bw -b -d 0.1 -s 9,12 --csv": {"both ways", ">9 B<", ">12 B<"},
	} {
		for _, ending := range []string{".svg", ".PNG"} {
			dir := t.TempDir()
			path := filepath.Join(dir, "picture"+ending)
			testutil.Must(t, os.WriteFile(path, []byte("old"), 0o600))
			status, out, errs := ping(t, k, append(strings.Fields(args), "--plot", path, serverAddr)...)
			if status != statusOK || errs != "" {
				t.Errorf("%s: status %d, stderr %q, stdout:\n%s", args, status, errs, out)
				continue
			}
			isPicture(t, path)
			b, err := os.ReadFile(path)
			testutil.Must(t, err)
			for _, text := range texts {
				if ending == ".svg" && !strings.Contains(string(b), text) {
					t.Errorf("%s: there is no %q in the picture", args, text)
				}
			}
			alone(t, dir, path)
		}
	}
}

// alone: there is nothing else in a folder.
func alone(t *testing.T, dir string, paths ...string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	testutil.Must(t, err)
	if strings.Join(names, " ") != strings.Join(paths, " ") {
		t.Errorf("in the folder are %q, want %q", names, paths)
	}
}

// TestPlotRefused: what cannot be is said before anything is sent, in a line, with status 2,
// and leaves no file.
func TestPlotRefused(t *testing.T) {
	var sent output
	k := newKernel(t, fakekernel.Options{Log: func(fakekernel.Call) { sent.Write([]byte("x")) }})
	dir := t.TempDir()
	testutil.Must(t, os.Mkdir(filepath.Join(dir, "folder.svg"), 0o777))
	for args, want := range map[string]string{
		"--plot x.gif":                     "ends with .svg or .png",
		"--plot svg":                       "ends with .svg or .png",
		"--plot " + dir + "/none/x.svg":    "picture .*/none/x.svg: no such file or directory",
		"--plot " + dir + "/folder.svg":    "picture .*/folder.svg: it is there, and no file",
		"perf lat --plot x":                "ends with .svg or .png",
		"perf lat --plot /dev/null/x.png":  "picture /dev/null/x.png: not a directory",
		"perf bw --plot " + dir + "/x.svg": "nothing to plot: bandwidth is drawn against the size.*--sizes",
	} {
		status, out, errs := ping(t, k, append(strings.Fields(args), serverAddr)...)
		if status != statusError || out != "" || sent.String() != "" {
			t.Errorf("%s: status %d, stdout %q, %d calls of the kernel", args, status, out, len(sent.String()))
		}
		mustMatch(t, "stderr of "+args, errs, "rdma-ping: [^\n]*"+want+"[^\n]*\n(Try 'rdma-ping --help'.\n)?")
	}
	alone(t, dir, filepath.Join(dir, "folder.svg"))
}

// TestPlotKept: a run that fails, or measures nothing, leaves the old picture as it was.
func TestPlotKept(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	dir := t.TempDir()
	path := filepath.Join(dir, "old.svg")
	testutil.Must(t, os.WriteFile(path, []byte("old"), 0o666))
	for _, command := range []string{"", "perf lat"} {
		status, _, errs := ping(t, k, append(strings.Fields(command), "--plot", path, serverAddr)...)
		if status != statusError || !strings.Contains(errs, "nobody listens") {
			t.Errorf("%s: status %d, stderr %q", command, status, errs)
		}
	}
	oddServer(t, k, func(uint64, int, []byte) []int { return nil }) // silent
	status, out, errs := ping(t, k, "-W", "20ms", "-c", "2", "-i", "0", "--plot", path, serverAddr)
	if status != statusLost || !strings.Contains(out, "2 sent, 0 received") {
		t.Errorf("status %d, stdout %q", status, out)
	}
	mustMatch(t, "stderr", errs, "rdma-ping: nothing to plot: nothing was answered\n")
	alone(t, dir, path)
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("the old picture is %q, %v", b, err)
	}
}

// TestPlotInterrupted: Ctrl-C draws what there is. A picture that cannot be drawn then is an
// error of a run that had none.
func TestPlotInterrupted(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	dir := t.TempDir()
	path := filepath.Join(dir, "x.svg")
	t.Run("answers", func(t *testing.T) {
		serve(t, k)
		c := start(t, k, "-i", "1ms", "--plot", path, serverAddr)
		c.out.await(t, "seq=2")
		if status := c.stop(); status != statusOK || c.errOut.String() != "" {
			t.Errorf("status %d, stderr %q", status, c.errOut.String())
		}
		isPicture(t, path)
		c = start(t, k, "-i", "1ms", "--plot", path, serverAddr)
		c.out.await(t, "seq=2")
		testutil.Must(t, os.RemoveAll(dir))
		if status := c.stop(); status != statusError {
			t.Errorf("without the folder: status %d", status)
		}
		mustMatch(t, "stderr", c.errOut.String(), "rdma-ping: picture [^\n]*/x.svg: no such file or directory\n")
	})
	oddServer(t, k, func(uint64, int, []byte) []int { return nil }) // silent
	testutil.Must(t, os.Mkdir(dir, 0o777))
	c := start(t, k, "-W", "1h", "--plot", path, serverAddr)
	c.out.await(t, "PING")
	if status := c.stop(); status != statusError {
		t.Errorf("without answers: status %d", status)
	}
	mustMatch(t, "stderr", c.errOut.String(), "rdma-ping: nothing to plot: nothing was answered\n")
	alone(t, dir)
}

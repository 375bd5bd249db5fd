package cpio

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

func archive(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	steps := []error{
		w.File("/usr/bin/tool", 0o755, 5, strings.NewReader("hello")),
		w.File("usr/bin/empty", 0o600, 0, strings.NewReader("")),
		w.Symlink("bin", "usr/bin"),
		w.CharDev("dev/console", 0o600, 5, 1),
		w.Dir("usr/bin"), // there already
		w.Close(),
	}
	for i, err := range steps {
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	return b.Bytes()
}

func TestFirstHeader(t *testing.T) {
	got := string(archive(t)[:116])
	want := "070701" + "00000001" + "000041ed" + strings.Repeat("00000000", 2) + "00000001" +
		strings.Repeat("00000000", 6) + "00000004" + "00000000" + "usr\x00" + "\x00\x00"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestPadded(t *testing.T) {
	if n := len(archive(t)); n%512 != 0 {
		t.Errorf("an archive of %d bytes cannot be followed by another", n)
	}
}

// TestReadBack lets an independent reader list the archive, where there is one.
func TestReadBack(t *testing.T) {
	bb, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("no busybox here; apt-get install busybox-static")
	}
	cmd := exec.Command(bb, "cpio", "-tv")
	cmd.Stdin = bytes.NewReader(archive(t))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"-rwxr-xr-x", "-rw-------", "usr/bin/tool\n", "bin -> usr/bin\n", "crw------- "} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if n := strings.Count(string(out), "usr/bin\n"); n != 2 { // the directory and the link's target
		t.Errorf("usr/bin is listed %d times:\n%s", n, out)
	}
}

func TestShortFile(t *testing.T) {
	if err := NewWriter(&bytes.Buffer{}).File("a", 0o644, 9, strings.NewReader("short")); err == nil {
		t.Error("a file shorter than its size was accepted")
	}
}

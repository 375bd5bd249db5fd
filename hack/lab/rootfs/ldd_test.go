package rootfs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseLdd(t *testing.T) {
	got, err := parseLdd(`/usr/bin/rping:
	linux-vdso.so.1 (0x00007f6b58729000)
	librdmacm.so.1 => /lib/x86_64-linux-gnu/librdmacm.so.1 (0x00007f6b586ec000)
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f6b584e9000)
	/lib64/ld-linux-x86-64.so.2 (0x00007f6b5872b000)
/usr/bin/busybox:
	not a dynamic executable
/usr/bin/dash:
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f6b584e9000)
	/lib64/ld-linux-x86-64.so.2 (0x00007f6b5872b000)
`)
	want := []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/librdmacm.so.1", "/lib64/ld-linux-x86-64.so.2"}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v, want - got +\n%s", err, d)
	}
	_, err = parseLdd("\tlibgone.so.1 => not found\n")
	if err == nil || !strings.Contains(err.Error(), "libgone.so.1") {
		t.Errorf("a missing library: got %v", err)
	}
}

func TestGuestPath(t *testing.T) {
	for in, want := range map[string]string{
		"/lib/x86_64-linux-gnu/libc.so.6": "/usr/lib/x86_64-linux-gnu/libc.so.6",
		"/lib64/ld-linux-x86-64.so.2":     "/usr/lib64/ld-linux-x86-64.so.2",
		"/sbin/ip":                        "/usr/bin/ip",
		"/usr/sbin/tc":                    "/usr/bin/tc",
		"/usr/bin/rping":                  "/usr/bin/rping",
		"/usr/local/bin/strace":           "/usr/bin/strace",
		"/etc/services":                   "/etc/services",
	} {
		if got := guestPath(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

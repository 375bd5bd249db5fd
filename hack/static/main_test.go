package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestCheck(t *testing.T) {
	static := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-o", static, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, b)
	}
	if err := check(static); err != nil {
		t.Errorf("a static program: %v", err)
	}
	if err := check(static + ".go"); err == nil {
		t.Error("a missing file passed")
	}
	if _, err := os.Stat("/lib64/ld-linux-x86-64.so.2"); err != nil {
		t.Skip("needs a dynamically linked /bin/sh; run on Debian, amd64")
	}
	if err := check("/bin/sh"); err == nil {
		t.Error("/bin/sh passed")
	}
}

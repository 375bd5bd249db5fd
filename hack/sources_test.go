package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSourceLine(t *testing.T) {
	tests := []struct{ name, file, text, want string }{
		{"deb822", "sources.list.d/debian.sources",
			"Types: deb\n# a comment: yes\nURIs: http://security.example/debian-security\nSuites: x\nSigned-By: /k1\n\nTypes: deb\nURIs: http://mirror.example/debian/\nSuites: bookworm bookworm-updates\nComponents: main\nSigned-By: /k2\n",
			"deb [signed-by=/k2] http://mirror.example/debian/ sid main\n"},
		{"inline key", "sources.list.d/debian.sources",
			"Types: deb\nURIs: http://mirror.example/debian\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQ: x\n",
			"deb http://mirror.example/debian sid main\n"},
		{"disabled", "sources.list.d/debian.sources", "Enabled: no\nURIs: http://mirror.example/debian\n", ""},
		{"one line", "sources.list", "# deb http://no.example/debian x main\ndeb http://m.example/debian bookworm main contrib\n",
			"deb http://m.example/debian sid main\n"},
		{"one line with options", "sources.list", "deb [arch=amd64 signed-by=/k] http://m.example/debian bookworm main\n",
			"deb [signed-by=/k] http://m.example/debian sid main\n"},
		{"another distribution", "sources.list", "deb http://archive.example/ubuntu noble main\n", ""},
		{"garbage", "sources.list", "deb\ndeb [\ndeb ]\ndeb x\n\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			p := filepath.Join(root, "etc/apt", tt.file)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			got, err := sourceLine(root, "sid")
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("got %q, error %v, want %q", got, err, tt.want)
			}
		})
	}
}

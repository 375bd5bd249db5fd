package apt

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDebian(t *testing.T) {
	for name, tt := range map[string]struct {
		file, text, want string
	}{
		"deb822": {"sources.list.d/debian.sources", "Types: deb\n# old\nURIs: http://m.example/debian\nSuites: bookworm\n" +
			"Signed-By: /usr/share/keyrings/k.gpg\n\nTypes: deb\nURIs: http://m.example/debian-security\n",
			"deb [signed-by=/usr/share/keyrings/k.gpg] http://m.example/debian sid main\n"},
		"disabled": {"sources.list.d/debian.sources", "URIs: http://off.example/debian\nEnabled: no\n\nURIs: http://on.example/debian/\n",
			"deb http://on.example/debian/ sid main\n"},
		"inline key": {"sources.list.d/debian.sources", "URIs: http://m.example/debian\nSigned-By:\n -----BEGIN\n",
			"deb http://m.example/debian sid main\n"},
		"one line": {"sources.list", "# deb http://no.example/debian x main\ndeb-src http://no.example/debian x main\n" +
			"deb http://vendor.example/repo x main\ndeb [arch=amd64 signed-by=/k] http://m.example/debian bookworm main\n",
			"deb [signed-by=/k] http://m.example/debian sid main\n"},
		"broken": {"sources.list", "deb\ndeb \ndeb [\ndeb [x] \n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, "etc", "apt", tt.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			s, err := Debian(root)
			got := ""
			if err == nil {
				got = s.Line("sid")
			}
			if got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

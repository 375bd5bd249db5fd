package apt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Source is an archive and the key that signs it.
type Source struct{ URI, Key string }

// Debian finds the Debian archive that the machine itself uses. Root is "/" but
// in tests.
func Debian(root string) (Source, error) {
	for _, s := range sources(root) {
		// Not security updates (debian-security) and not other vendors.
		if strings.HasSuffix(strings.TrimRight(s.URI, "/"), "/debian") {
			return s, nil
		}
	}
	return Source{}, errors.New("no Debian archive in the apt sources of this machine")
}

// Line is the source of a suite as in sources.list.
func (s Source) Line(suite string) string {
	opt := ""
	if s.Key != "" {
		opt = "[signed-by=" + s.Key + "] "
	}
	return "deb " + opt + s.URI + " " + suite + " main\n"
}

// sources reads both formats of apt's sources.
func sources(root string) []Source {
	var out []Source
	dir := filepath.Join(root, "etc", "apt")
	deb822, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", "*.sources"))
	for _, p := range deb822 {
		for stanza := range strings.SplitSeq(read(p), "\n\n") {
			out = append(out, parseStanza(stanza)...)
		}
	}
	oneLine, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", "*.list"))
	for _, p := range append([]string{filepath.Join(dir, "sources.list")}, oneLine...) {
		for line := range strings.Lines(read(p)) {
			out = append(out, parseLine(line)...)
		}
	}
	return out
}

// read gives "" for what cannot be read, as if it were not there.
func read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

// parseStanza reads a deb822 paragraph. A key given inline is left out: apt then
// checks against all keys it trusts.
func parseStanza(s string) []Source {
	field := map[string]string{}
	for line := range strings.Lines(s) {
		if name, value, ok := strings.Cut(line, ":"); ok && line[0] != '#' && line[0] != ' ' {
			field[strings.ToLower(name)] = strings.TrimSpace(value)
		}
	}
	if field["enabled"] == "no" {
		return nil
	}
	key := field["signed-by"]
	if !strings.HasPrefix(key, "/") {
		key = ""
	}
	var out []Source
	for uri := range strings.FieldsSeq(field["uris"]) {
		out = append(out, Source{uri, key})
	}
	return out
}

// parseLine reads "deb [option=value ...] uri suite component...".
func parseLine(line string) []Source {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
	if !ok {
		return nil
	}
	var s Source
	rest = strings.TrimSpace(rest)
	if opts, after, ok := strings.Cut(strings.TrimPrefix(rest, "["), "]"); ok && strings.HasPrefix(rest, "[") {
		for o := range strings.FieldsSeq(opts) {
			if key, ok := strings.CutPrefix(o, "signed-by="); ok {
				s.Key = key
			}
		}
		rest = after
	}
	f := strings.Fields(rest)
	if len(f) < 2 {
		return nil
	}
	s.URI = f[0]
	return []Source{s}
}

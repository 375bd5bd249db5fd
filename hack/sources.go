package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sourceLine makes a sources.list line for a Debian suite from the URI and the
// signing key that the machine itself uses (under root, for tests).
func sourceLine(root, suite string) (string, error) {
	for _, s := range aptSources(root) {
		if isDebian(s.uri) {
			opt := ""
			if s.key != "" {
				opt = "[signed-by=" + s.key + "] "
			}
			return fmt.Sprintf("deb %s%s %s main\n", opt, s.uri, suite), nil
		}
	}
	return "", fmt.Errorf("no Debian archive in the apt sources of this machine")
}

// isDebian tells the main archive from security updates and other vendors.
func isDebian(uri string) bool {
	return strings.HasSuffix(strings.TrimRight(uri, "/"), "/debian")
}

type aptSource struct{ uri, key string }

// aptSources reads both formats of apt's sources.
func aptSources(root string) []aptSource {
	var out []aptSource
	dir := filepath.Join(root, "etc", "apt")
	deb822, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", "*.sources"))
	for _, p := range deb822 {
		b, err := os.ReadFile(p)
		if err != nil {
			continue // unreadable: as if it were not there
		}
		for stanza := range strings.SplitSeq(string(b), "\n\n") {
			out = append(out, parseStanza(stanza)...)
		}
	}
	oneLine, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", "*.list"))
	for _, p := range append([]string{filepath.Join(dir, "sources.list")}, oneLine...) {
		b, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			out = append(out, parseLine(line)...)
		}
	}
	return out
}

// parseStanza reads a deb822 paragraph. A key given inline is left out: apt then
// checks against all keys it trusts.
func parseStanza(s string) []aptSource {
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
	var out []aptSource
	for uri := range strings.FieldsSeq(field["uris"]) {
		out = append(out, aptSource{uri, key})
	}
	return out
}

// parseLine reads "deb [option=value ...] uri suite component...".
func parseLine(line string) []aptSource {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
	if !ok {
		return nil
	}
	var s aptSource
	rest = strings.TrimSpace(rest)
	if opts, after, ok := strings.Cut(strings.TrimPrefix(rest, "["), "]"); ok && rest[0] == '[' {
		for o := range strings.FieldsSeq(opts) {
			if key, ok := strings.CutPrefix(o, "signed-by="); ok {
				s.key = key
			}
		}
		rest = after
	}
	if f := strings.Fields(rest); len(f) >= 2 {
		s.uri = f[0]
		return []aptSource{s}
	}
	return nil
}

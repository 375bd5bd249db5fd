#!/bin/sh
# Runs every fuzz target of the module, one after the other, for FUZZTIME (10s) each. Inputs
# are shortened by a few tries only: by default that may take most of the time.
set -eu
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
for pkg in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...); do
	tests=$(go test -list '^Fuzz' "$pkg")
	for target in $(echo "$tests" | grep '^Fuzz'); do
		echo "fuzz: $target in $pkg"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-10s}" -fuzzminimizetime 20x "$pkg"
	done
done

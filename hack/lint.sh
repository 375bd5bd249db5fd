#!/bin/sh
# Checks the style of both modules: gofmt and the linters of .golangci.yml, which also
# hold the directions of imports. The linter is built once (minutes) and kept in the cache.
set -eu
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
version=v2.15.0

go_version=$(go env GOVERSION)
tool=${XDG_CACHE_HOME:-$HOME/.cache}/pureverbs/bin/golangci-lint-$version-$go_version
if [ ! -x "$tool" ]; then
	echo "lint: building golangci-lint $version, once" >&2
	new=$tool.$$
	trap 'rm -rf "$new"' EXIT
	mkdir -p "$new"
	(cd "$new" && GOBIN=$new go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version")
	mv "$new/golangci-lint" "$tool"
fi

status=0
unformatted=$(gofmt -l .)
if [ -n "$unformatted" ]; then
	printf 'lint: not formatted (gofmt -w):\n%s\n' "$unformatted" >&2
	status=1
fi
for script in .ci/run hack/*.sh hack/*/*.sh; do sh -n "$script" || status=1; done
"$tool" run ./... || status=1
(cd hack && "$tool" run --config ../.golangci.yml ./...) || status=1
exit $status

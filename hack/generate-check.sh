#!/bin/sh
# Fails if abi/z*.go is not what hack/uapi.json gives, or if uapi.json is not what
# the kernel headers of its version give. Where the mirror has dropped that version,
# the second part is skipped, loudly.
set -eu
cd "$(dirname "$0")"
exec go run . check "$@"

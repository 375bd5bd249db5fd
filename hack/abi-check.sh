#!/bin/sh
# Lets a C compiler judge hack/uapi.json: every struct, offset, size, enumerator and
# macro becomes a _Static_assert that is compiled against the kernel headers
#   1. of the version uapi.json was made of (fetched into the cache, not installed),
#   2. that are installed here, as far as they go (an older kernel has less).
# Installs nothing.
set -eu
cd "$(dirname "$0")"

CC=${CC:-gcc}
if ! command -v "$CC" >/dev/null; then
	echo "abi-check: no C compiler \"$CC\": apt-get install gcc, or set CC" >&2
	exit 1
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
CGO_ENABLED=0 go build -o "$out/gen-abi" .
compile() { "$CC" -std=gnu11 -fsyntax-only "$@"; }

status=0
pinned=$("$out/gen-abi" headers -version pinned -cflags) || status=$?
case $status in
0)
	"$out/gen-abi" assert "$out/pinned.c"
	# shellcheck disable=SC2086 # a list of options
	compile $pinned "$out/pinned.c"
	echo "abi-check: ok: $(grep -c '^[_OM]' "$out/pinned.c") assertions, $pinned"
	# A check that cannot fail proves nothing: move one member and look.
	sed 's/^\(OFFSET(struct ib_uverbs_attr, attr_id, \)0)/\14)/' "$out/pinned.c" >"$out/broken.c"
	# shellcheck disable=SC2086
	if cmp -s "$out/pinned.c" "$out/broken.c" || compile $pinned "$out/broken.c" 2>/dev/null; then
		echo "abi-check: a wrong offset went unnoticed" >&2
		exit 1
	fi
	;;
3) echo "abi-check: SKIPPED the pinned headers: the mirror does not have them any more" ;;
*) exit "$status" ;;
esac

if [ -e /usr/include/rdma/ib_user_verbs.h ]; then
	"$out/gen-abi" assert -have /usr/include "$out/installed.c"
	compile "$out/installed.c"
	echo "abi-check: ok: $(grep -c '^[_OM]' "$out/installed.c") assertions, headers in /usr/include"
else
	echo "abi-check: SKIPPED the installed headers: there are none (apt-get install linux-libc-dev)"
fi

#!/bin/sh
# Makes sure that there is a C compiler with its headers: the race detector and abi-check
# need one, nothing else does. Installs it if it may, or says how.
set -eu
try() { printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | ${CC:-gcc} -x c -fsyntax-only - 2>/dev/null; }
install() { apt-get install -y --no-install-recommends gcc libc6-dev; }
try && exit
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	printf 'A C compiler is missing on this machine; on Debian install it with\n\n    sudo apt-get install -y gcc libc6-dev\n\n' >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
install || { apt-get update && install; }
try || { echo "the C compiler ${CC:-gcc} does not work" >&2; exit 1; }

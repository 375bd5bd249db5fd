#!/bin/sh
# Fetches the newest rdma-core, which is that of Debian sid, with all libraries that it needs,
# into the cache, and prints the folder. Nothing is installed: the folder's script "run" starts
# a program of it, or any other, with these libraries. What is there already is kept; -refresh
# looks for a newer one.
set -eu
cd "$(dirname "$0")"
exec go run ./rdmacore "$@"

// Command rdmacore fetches the newest rdma-core into the cache: see rdma-core-newest.sh.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pureverbs/rdma/hack/lab/apt"
	"github.com/pureverbs/rdma/hack/lab/cache"
)

// suite is where rdma-core is newest.
const suite = "sid"

// wanted are the programs and what is needed to compile for these libraries.
var wanted = []string{"ibverbs-utils", "ibverbs-providers", "libibverbs-dev", "librdmacm-dev", "rdmacm-utils"}

func main() {
	refresh := flag.Bool("refresh", false, "look for a newer one")
	flag.Parse()
	dir, err := fetch(context.Background(), *refresh)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rdma-core-newest:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "rdma-core-newest: "+format+"\n", args...)
}

func fetch(ctx context.Context, refresh bool) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	c := &cache.Cache{Dir: filepath.Join(base, "pureverbs", "rdma-core"), Say: say}
	dir := filepath.Join(c.Dir, "newest")
	if _, err := os.Stat(dir); err == nil && !refresh {
		return dir, nil
	}
	pkgs, a, err := list(ctx, c)
	if err != nil {
		return "", err
	}
	name := folder(pkgs)
	if _, err := c.Make(name, func(out string) error { return build(ctx, a, out, pkgs) }); err != nil {
		return "", err
	}
	return dir, point(dir, name)
}

// list finds out what there is now.
func list(ctx context.Context, c *cache.Cache) ([]apt.Package, *apt.Apt, error) {
	src, err := apt.Debian("/")
	if err != nil {
		return nil, nil, err
	}
	say("reading the index of Debian %s", suite)
	a, err := apt.New(filepath.Join(c.Dir, "apt"), suite, "amd64", src)
	if err != nil {
		return nil, nil, err
	}
	if err := a.Update(ctx); err != nil {
		return nil, nil, err
	}
	pkgs, err := a.Resolve(ctx, wanted...)
	return pkgs, a, err
}

// folder is named after the version.
func folder(pkgs []apt.Package) string {
	for _, p := range pkgs {
		if p.Name == "ibverbs-utils" {
			return strings.ReplaceAll(p.Version, "/", "_")
		}
	}
	return "unknown"
}

func build(ctx context.Context, a *apt.Apt, out string, pkgs []apt.Package) error {
	debs, root := filepath.Join(out, "debs"), filepath.Join(out, "root")
	if err := errors.Join(os.Mkdir(debs, 0o755), os.Mkdir(root, 0o755)); err != nil {
		return err
	}
	say("fetching %d packages", len(pkgs))
	if err := a.Download(ctx, debs, pkgs...); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err == nil {
		err = apt.Unpack(ctx, root, files...)
	}
	if err == nil {
		err = os.RemoveAll(debs)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(out, "run"), []byte(run), 0o755)
	}
	return err
}

// run starts a program with the loader and the libraries of the folder. Providers are looked
// for where libibverbs was to be installed, and then where libraries are.
const run = `#!/bin/sh
# run PROGRAM [arguments]: starts a program of this folder, or any other by its path, with the
# libraries of this folder.
root=$(dirname "$(readlink -f "$0")")/root
lib=$root/usr/lib/x86_64-linux-gnu
program=$1
shift
case $program in
*/*) ;;
*) program=$root/usr/bin/$program ;;
esac
export IBV_DRIVERS="$lib/libibverbs/libmlx5"
exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib:$lib/libibverbs" "$program" "$@"
`

// point makes the link "newest", in one step.
func point(link, name string) error {
	tmp := link + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Symlink(name, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, link)
}

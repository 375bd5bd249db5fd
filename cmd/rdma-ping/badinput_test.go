//go:build linux

package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pureverbs/rdma/internal/fakekernel"
)

// badFlags are values that a kind of flag does not take. "" stands for a value that is empty.
var badFlags = map[string][]string{
	"size":     {"-1", "1x", "9999999999G", "", " ", "k", "1.5", "0x10", "1e3", "1_000", "NaN", "4k4k", "--"},
	"some":     {"0", "-1", "1x", "9999999999G", "", "2..", "..2", "8..2", "1,,2", "1,", "2..9999999999G", "257M"}, // sizes of perf
	"count":    {"-1", "1x", "", "1.5", "1e3", "99999999999999999999", "0x"},
	"int":      {"0", "-1", "1x", "", "1.5", "99999999999999999999"},
	"index":    {"-2", "256", "1x", ""},
	"duration": {"-1s", "1x", "", "1e300", "NaN", "inf", "99999h", "1s 2s"},
	"timeout":  {"0", "-1s", "1x", "", "99999h"},
	"port":     {"-1", "65536", "1x", "", "7174/tcp", "99999999999999999999"},
	"source":   {"here", "10.9.0", "10.9.0.1:5", "10.9.0.0/24", "fe80::1", "::1%", "300.1.1.1", "10.9.0.1%eth0"},
	"address":  {"here", "10.9.0", "10.9.0.1:0", "10.9.0.1:65536", "10.9.0.1:x", "fe80::1", "[fe80::1", "10.9.0.0/24", "300.1.1.1", "[]:1", ":1", " "},
	"bool":     {"maybe", ""},
}

// badArgs are addresses of whom to ask that cannot be.
var badArgs = []string{
	"", " ", ":", ":7174", "10.9.0.1:", "10.9.0.1:0", "10.9.0.1:-1", "10.9.0.1:65536", "10.9.0.1:x", "10.9.0.1:7174:7174",
	"[", "[]", "[]:1", "[::1", "::1]", "[::1]7174", "[::1]:x", "fe80:::1", "fe80::1", "fe80::1%", "[fe80::1]:7174", "10.9.0.0/24", "10.9.0.1%eth0",
	"0.0.0.0", "::", "[::]:7174", "224.0.0.1", "ff02::1%eth0", "ff0e::1", "rdma://10.9.0.1", "ho st",
}

// inputs are the commands, with their flags by kind and what a good run is given besides.
var inputs = []struct {
	command string
	flags   map[string]string
	target  bool   // takes ADDR
	rest    string // what else it needs
	extra   bool   // one argument more is too many
}{
	{"", map[string]string{"-c": "count", "--count": "count", "-i": "duration", "-w": "duration", "-f": "bool", "-D": "bool", "-s": "size", "--size": "size", "-W": "timeout", "-p": "port", "-I": "source", "--poll": "bool", "--block": "bool", "--json": "bool"}, true, "", false}, // TestUsageErrors has how many
	{"serve", map[string]string{"-a": "address", "-p": "port", "--max-clients": "int", "--max-size": "size", "--idle-timeout": "timeout", "--poll": "bool", "--block": "bool", "-q": "bool"}, false, "", true},
	{"perf lat", map[string]string{"-s": "some", "-c": "int", "-d": "duration", "--warmup": "count", "--qps": "int", "-W": "timeout", "-p": "port", "-I": "source", "--gid-index": "index", "--verify": "bool"}, true, "", true},
	{"perf bw", map[string]string{"-s": "some", "--sizes": "some", "-c": "int", "-d": "duration", "--qps": "int", "--depth": "int", "--batch": "int", "-W": "timeout", "-p": "port"}, true, "", true},
	{"perf serve", map[string]string{"-a": "address", "-p": "port", "--max-clients": "int", "--max-qps": "int", "--max-size": "size", "--max-memory": "size", "--max-time": "timeout", "--idle-timeout": "timeout", "--gid-index": "index"}, false, "", true},
	{"perf serve --perftest", map[string]string{"--size": "size", "--count": "int"}, false, "", true},
	{"devices", map[string]string{"--json": "bool", "-v": "bool"}, false, "", true},
	{"doctor", map[string]string{"-s": "size", "--json": "bool"}, true, "", true},
	{"link add", nil, false, "rxe9 netdev eth0", true},
	{"link del", nil, false, "rxe0", true},
	{"completion", nil, false, "bash", true},
	{"version", nil, false, "", true},
}

// refused runs the tool, which has to find the mistake before it asks the kernel for anything.
func refused(t *testing.T, want string, args ...string) {
	t.Helper()
	asked := false
	k := fakekernel.New(fakekernel.Options{Log: func(fakekernel.Call) { asked = true }})
	defer k.Close()
	status, out, errs := ping(t, k, args...)
	if status != statusError || out != "" || asked {
		t.Errorf("%q: status %d, stdout %q, the kernel was asked: %v; want 2 and nothing", args, status, out, asked)
	}
	line, hint, _ := strings.Cut(errs, "\n")
	if !strings.HasPrefix(line, "rdma-ping: ") || !strings.Contains(line, want) || hint != "Try 'rdma-ping --help'.\n" {
		t.Errorf("%q: stderr %q, want one line with %q and a pointer to --help", args, errs, want)
	}
}

// good is a command line without a mistake.
func good(command, rest string, target bool) []string {
	args := append(strings.Fields(command), strings.Fields(rest)...)
	if target {
		args = append(args, serverAddr)
	}
	return args
}

// TestBadFlags: values that a flag does not take, flags that there are not, and flags without
// their value.
func TestBadFlags(t *testing.T) {
	for _, in := range inputs {
		t.Run("rdma-ping "+in.command, func(t *testing.T) {
			args := good(in.command, in.rest, in.target)
			for flag, kind := range in.flags {
				for _, value := range badFlags[kind] {
					if strings.HasPrefix(flag, "--") || kind == "bool" {
						refused(t, "", append(slices.Clone(args), flag+"="+value)...)
					} else {
						refused(t, "", append(slices.Clone(args), flag, value)...)
					}
				}
				if kind != "bool" {
					refused(t, "needs an argument", append(slices.Clone(args), flag)...)
				}
			}
			for _, unknown := range []string{"--nonsense", "--nonsense=1", "-Z", "---", "--=1", "-=", "--size-", "-Zc"} {
				refused(t, "", append(slices.Clone(args), unknown)...)
			}
		})
	}
}

// TestBadArguments: addresses that cannot be, none where one is needed, and one too many.
func TestBadArguments(t *testing.T) {
	for _, in := range inputs {
		t.Run("rdma-ping "+in.command, func(t *testing.T) {
			args := good(in.command, in.rest, in.target)
			if in.extra {
				refused(t, "", append(slices.Clone(args), "extra")...)
				refused(t, "", append(slices.Clone(args), "")...)
			}
			if !in.target {
				return
			}
			for _, addr := range badArgs {
				refused(t, "", append(strings.Fields(in.command), addr)...)
			}
			if in.command != "doctor" {
				refused(t, "no address", strings.Fields(in.command)...)
			}
		})
	}
}

// TestContradictions: flags that exclude each other, or go with another that is not there.
func TestContradictions(t *testing.T) {
	for line, want := range map[string]string{
		"--rping -s 0 10.9.0.1":                 "at least 1",
		"-p 0 10.9.0.1":                         "port 0",
		"help nonsense":                         "no command",
		"help perf nonsense":                    "no command",
		"--poll --block 10.9.0.1":               "exclude each other",
		"serve --poll --block":                  "exclude each other",
		"perf lat --poll --block 10.9.0.1":      "exclude each other",
		"perf serve --poll --block":             "exclude each other",
		"--exporter :1 --poll --block 10.9.0.1": "exclude each other",
		"-c 0 10.9.0.1":                         "at least 1",
		"--json --histogram 10.9.0.1":           "exclude each other",
		"--plot x.txt 10.9.0.1":                 ".svg",
		"--plot x.svg 10.9.0.1 10.9.0.2":        "one ADDR",
		"perf bw --plot x.svg 10.9.0.1":         "nothing to plot",
		"perf lat --csv --histogram 10.9.0.1":   "exclude each other",
		"-I 10.9.0.1 2001:db8:9::1":             "not of one family",
		"-I 2001:db8:9::1 10.9.0.1":             "not of one family",
		"perf":                                  "lat, bw or serve",
		"perf latency 10.9.0.1":                 "lat, bw or serve",
		"perf lat -p 0 10.9.0.1":                "port 0",
		"perf lat -c 5 -d 1s 10.9.0.1":          "exclude each other",
		"perf bw --json --csv 10.9.0.1":         "exclude each other",
		"perf bw -d 0 10.9.0.1":                 "nothing would be sent",
		"perf lat --device rxe0 10.9.0.1":       "go with --tcp",
		"perf lat --gid-index 0 10.9.0.1":       "go with --tcp",
		"perf bw --batch 65 10.9.0.1":           "from 1 to the depth",
		"perf lat -o atomic -s 4 10.9.0.1":      "8 bytes",
		"perf lat -o write -t ud 10.9.0.1":      "no write",
		"perf lat -o atomic -t uc 10.9.0.1":     "no atomic",
		"perf lat -o sned 10.9.0.1":             "send, write, read or atomic",
		"perf lat -t xrc 10.9.0.1":              "rc, uc or ud",
		"perf lat --depth 2 10.9.0.1":           "unknown flag",
		"perf lat --perftest --verify 10.9.0.1": "not verified",
		"perf serve --tcp --perftest":           "exclude each other",
		"perf serve --device rxe0":              "go with --tcp",
		"perf serve --op write":                 "go with --perftest",
		"perf serve --size 64":                  "go with --perftest",
		"perf serve --count 100":                "go with --perftest",
		"perf serve --perftest --size 0":        "from 1",
		"perf serve --max-size 0":               "at least 1 byte",
		"perf serve --max-memory 0":             "at least 1 byte",
		"perf serve --max-clients 1048577":      "at most 1048576",
		"serve --max-clients 1048577":           "at most 1048576",
		"link":                                  "add or del",
		"link list":                             "add or del",
		"link add":                              "no name",
		"link add rxe9":                         "on which network interface",
		"link add rxe9 netdev":                  "needs a value",
		"link add rxe9 type rxe netdev":         "needs a value",
		"link add rxe9 netdev eth0 type":        "needs a value",
		"link add rxe9 eth0":                    "neither type nor netdev",
		"link del":                              "one name",
		"completion powershell":                 "for which shell",
		"completion":                            "for which shell",
	} {
		refused(t, want, strings.Fields(line)...)
	}
}

// TestUnreachable: nobody there, in one line that names the address, for every client.
func TestUnreachable(t *testing.T) {
	k := newKernel(t, fakekernel.Options{Silent: []netip.Addr{netip.MustParseAddr("10.9.0.77")}})
	for _, command := range []string{"-c 1", "--rping -c 1", "perf lat -c 5", "perf lat -t ud -c 5", "perf bw -o write", "perf lat --perftest -c 5 -W 1s"} {
		for _, addr := range []string{"10.9.0.77", "10.9.0.77:9", "192.0.2.1", "[2001:db8:1::1]:9", serverAddr, serverAddr + ":9", "127.0.0.1", "::1"} {
			if strings.Contains(command, "perftest") && strings.HasPrefix(addr, serverAddr) {
				continue // it waits for the C server to come back
			}
			status, out, errs := ping(t, k, append(strings.Fields(command), addr)...)
			host, _, err := splitAddr(addr, 1)
			if status != statusError || out != "" || err != nil || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, host) {
				t.Errorf("%s %s: status %d, stdout %q, stderr %q; want 2, nothing and one line", command, addr, status, out, errs)
			}
		}
	}
}

// TestForeignSource: where the source is what is wrong, the source is what is named.
func TestForeignSource(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	serve(t, k)
	perfServe(t, k)
	for _, command := range []string{"-c 1", "--rping -c 1", "perf lat -c 5", "perf bw -t uc -c 5", "perf lat --perftest -c 5"} {
		for source, target := range map[string]string{"192.0.2.1": serverAddr, "2001:db8:1::1": "2001:db8:9::1"} {
			status, out, errs := ping(t, k, append(strings.Fields(command), "-I", source, target)...)
			if status != statusError || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "has the address "+source) {
				t.Errorf("%s: status %d, stdout %q, stderr %q; want 2, nothing and one line about %s", command, status, out, errs, source)
			}
		}
	}
}

// TestUnknownDevice: a name of no device, before anything is sent or waited for.
func TestUnknownDevice(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	for _, line := range []string{"perf lat --tcp --device rxe7 127.0.0.1:1", "perf serve --tcp -a 127.0.0.1 -p 0 --device rxe7"} {
		status, out, errs := ping(t, k, strings.Fields(line)...)
		if status != statusError || out != "" {
			t.Errorf("%s: status %d, stdout %q", line, status, out)
		}
		mustMatch(t, line, errs, `rdma-ping: no RDMA device "rxe7": [^\n]*\n`)
	}
}

// TestBadLinks: names that no device can have are not sent to the kernel.
func TestBadLinks(t *testing.T) {
	long := strings.Repeat("x", 65)
	for _, line := range []string{
		"link add a/b netdev eth0", "link add . netdev eth0", "link add " + long + " netdev eth0", "link add rxe9 netdev " + long,
		"link add rxe9 netdev a/b", "link add rxe9 type " + long + " netdev eth0", "link add a%d netdev eth0", "link del a/b", "link del " + long,
	} {
		status, told, out, errs := linking(t, nil, line)
		if status != statusError || out != "" || len(told) > 0 {
			t.Errorf("%s: status %d, stdout %q, and the kernel was told %q", line, status, out, told)
		}
		mustMatch(t, line, errs, `rdma-ping: [^\n]+\n`)
	}
}

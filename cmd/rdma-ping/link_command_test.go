//go:build linux

package main

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/fakekernel"
)

// links is a socket of RDMA netlink where links are added and deleted.
type links struct {
	discover.Transport
	said *[]string
	err  error
}

func (l links) Execute(m netlink.Message) ([]netlink.Message, error) {
	add := abi.RDMA_NL_GET_TYPE(abi.RDMA_NL_NLDEV, abi.RDMA_NLDEV_CMD_NEWLINK)
	del := abi.RDMA_NL_GET_TYPE(abi.RDMA_NL_NLDEV, abi.RDMA_NLDEV_CMD_DELLINK)
	if kind := uint16(m.Header.Type); kind != add && kind != del {
		return l.Transport.Execute(m)
	}
	ad, err := netlink.NewAttributeDecoder(m.Data)
	if err != nil {
		return nil, err
	}
	var words []string
	for ad.Next() {
		if ad.Type() == abi.RDMA_NLDEV_ATTR_DEV_INDEX {
			words = append(words, fmt.Sprint(ad.Uint32()))
			continue
		}
		words = append(words, ad.String())
	}
	*l.said = append(*l.said, strings.Join(words, " "))
	return nil, l.err
}

// linking runs a command where links can be made, and returns what the kernel was told.
func linking(t *testing.T, errno error, args string) (status int, told []string, stdout, stderr string) {
	t.Helper()
	sys := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{{}, {}}}).System()
	dial := sys.Netlink
	sys.Netlink = func() (discover.Transport, error) {
		conn, err := dial()
		return links{conn, &told, errno}, err
	}
	var out, errs bytes.Buffer
	status = run(t.Context(), strings.Fields(args), &out, &errs, sys)
	return status, told, out.String(), errs.String()
}

func TestLink(t *testing.T) {
	for args, want := range map[string]string{
		"link add rxe7 type rxe netdev eth0":         "rxe7 rxe eth0",
		"link add siw0 netdev eth1 type siw":         "siw0 siw eth1",
		"link add rxe7 netdev eth0":                  "rxe7 rxe eth0",
		"link add siw0 --type siw --netdev eth0":     "siw0 siw eth0",
		"link add siw0 --type rxe type siw netdev e": "siw0 siw e",
		"link del rxe1":                              "1",
		"link delete rxe0":                           "0",
	} {
		status, told, out, errs := linking(t, nil, args)
		if diff := cmp.Diff([]string{want}, told); diff != "" || status != statusOK || out+errs != "" {
			t.Errorf("%s: status %d, stdout %q, stderr %q; the kernel was told (-want +got):\n%s", args, status, out, errs, diff)
		}
	}
}

// TestLinkFails: one line, and what to do.
func TestLinkFails(t *testing.T) {
	for args, tt := range map[string]struct {
		errno error
		want  string
	}{
		"link add rxe0 netdev eth0":          {syscall.EEXIST, "exists"},
		"link add rxe7 netdev eth9":          {syscall.ENODEV, "no interface eth9"},
		"link add siw0 type siw netdev eth0": {syscall.EINVAL, "modprobe siw"},
		"link add rxe7 type rxe netdev eth0": {syscall.EPERM, "CAP_NET_ADMIN"},
		"link del rxe1":                      {syscall.EPERM, "as root"},
		"link del rxe9":                      {nil, "there is rxe0, rxe1"},
	} {
		status, _, out, errs := linking(t, tt.errno, args)
		if status != statusError || out != "" {
			t.Errorf("%s: status %d, stdout %q", args, status, out)
		}
		mustMatch(t, args, errs, "rdma-ping: [^\n]*"+tt.want+"[^\n]*\n")
	}
}

func TestLinkUsage(t *testing.T) {
	for args, want := range map[string]string{
		"link":                              "use add or del",
		"link show":                         `no command "show"`,
		"link add":                          "no name",
		"link add rxe0":                     "on which network interface",
		"link add rxe0 type":                "type needs a value",
		"link add rxe0 type rxe":            "on which network interface",
		"link add rxe0 on eth0":             `"on" is neither`,
		"link add --nonsense rxe0":          "unknown flag",
		"link del":                          "one name",
		"link del rxe0 rxe1":                "one name",
		"completion":                        "for which shell. bash, fish, zsh",
		"completion tcsh":                   "for which shell",
		"completion bash zsh":               "for which shell",
		"completion --no-descriptions bash": "unknown flag",
	} {
		status, told, out, errs := linking(t, nil, args)
		if status != statusError || out != "" || len(told) > 0 {
			t.Errorf("%s: status %d, stdout %q, and the kernel was told %q", args, status, out, told)
		}
		mustMatch(t, args, errs, "rdma-ping: [^\n]*"+want+"[^\n]*\nTry 'rdma-ping --help'.\n")
	}
}

// TestCompletion checks the scripts, and what they ask the program when a key is pressed.
func TestCompletion(t *testing.T) {
	for shell, want := range map[string]string{
		"bash": "complete -o default -F __start_rdma-ping rdma-ping", "zsh": "#compdef rdma-ping", "fish": "complete -c rdma-ping",
	} {
		status, _, out, errs := linking(t, nil, "completion "+shell)
		if status != statusOK || errs != "" || !strings.Contains(out, want) {
			t.Errorf("%s: status %d, stderr %q, no %q in %d bytes", shell, status, errs, want, len(out))
		}
	}
	const noFiles, someFiles, allFiles = ":4", ":8", ":0" // some: those that end so
	for _, tt := range []struct{ typed, want, files string }{
		{"link del *", "rxe0 rxe1", noFiles},
		{"link del rxe0 *", "", noFiles},
		{"link add *", "", noFiles},
		{"link add rxe7 *", "type netdev", noFiles},
		{"link add rxe7 type *", "rxe siw", noFiles},
		{"link add rxe7 type rxe netdev *", "eth0 eth1", noFiles},
		{"completion *", "bash fish zsh", noFiles},
		{"10.9.0.1 *", "", noFiles},
		{"-c 1 --plot *", "svg png", someFiles},
		{"perf lat --plot *", "svg png", someFiles},
		{"--targets *", "", allFiles},
	} {
		args := strings.ReplaceAll(tt.typed, "*", "")
		sys := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{{}, {}}}).System()
		var out, errs bytes.Buffer
		run(t.Context(), append(append([]string{"__completeNoDesc"}, strings.Fields(args)...), ""), &out, &errs, sys)
		words := strings.Fields(out.String())
		if n := len(words) - 1; n < 0 || words[n] != tt.files {
			t.Errorf("%s: want %s, got %q", tt.typed, tt.files, words)
		} else if got := strings.Join(words[:n], " "); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.typed, got, tt.want)
		}
	}
}

package discover

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func utoa(v uint32) string { return strconv.FormatUint(uint64(v), 10) }

// readValue reads a sysfs attribute. Each ends with a newline; one that does not
// was cut short and is an error, since half a number is a number too.
func readValue(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	value, whole := strings.CutSuffix(string(b), "\n")
	if !whole || strings.Contains(value, "\n") {
		return "", fmt.Errorf("read %s: %q is not one whole line", path, string(b))
	}
	return value, nil
}

// readUint reads an attribute that is a number; base 0 takes the prefix 0x.
func readUint(path string, base, bits int) (uint64, error) {
	text, err := readValue(path)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(text, base, bits)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return v, nil
}

// countEntries returns the number of entries of a directory.
func countEntries(path string) (int, error) {
	entries, err := os.ReadDir(path)
	return len(entries), err
}

// exists tells whether there is such a path under the root.
func (s *System) exists(elem ...string) bool {
	_, err := os.Stat(s.path(elem...))
	return err == nil
}

// parseGUID reads four groups of four hexadecimal digits: "0202:c9ff:fe00:0001".
func parseGUID(text string) (uint64, error) {
	groups := strings.Split(text, ":")
	if len(groups) != 4 {
		return 0, fmt.Errorf("parse GUID %q: want 4 groups", text)
	}
	var guid uint64
	for _, g := range groups {
		v, err := parseGroup(g)
		if err != nil {
			return 0, fmt.Errorf("parse GUID %q: %w", text, err)
		}
		guid = guid<<16 | uint64(v)
	}
	return guid, nil
}

// parseGID reads eight groups of four hexadecimal digits, without any left out.
func parseGID(text string) (gid [16]byte, err error) {
	groups := strings.Split(text, ":")
	if len(groups) != 8 {
		return gid, fmt.Errorf("parse GID %q: want 8 groups", text)
	}
	for i, g := range groups {
		v, err := parseGroup(g)
		if err != nil {
			return gid, fmt.Errorf("parse GID %q: %w", text, err)
		}
		gid[2*i], gid[2*i+1] = byte(v>>8), byte(v)
	}
	return gid, nil
}

// parseGroup reads exactly four hexadecimal digits, as fewer mean a short read.
func parseGroup(text string) (uint16, error) {
	if len(text) != 4 {
		return 0, errors.New("want groups of 4 digits")
	}
	v, err := strconv.ParseUint(text, 16, 16)
	return uint16(v), err
}

// ibdev returns the directory of the device in sysfs. The name that Devices found
// may be out of date, that of the uverbs device is not: it leads to the present
// one.
func (s *System) ibdev(d *Device) string {
	name := d.Name
	if d.SysName != "" {
		if now, err := readValue(s.path("sys/class/infiniband_verbs", d.SysName, "ibdev")); err == nil && validName(now) == nil {
			name = now
		}
	}
	return s.path("sys/class/infiniband", name)
}

// port returns the directory of a port in sysfs.
func (s *System) port(d *Device, port int) string {
	return filepath.Join(s.ibdev(d), "ports", strconv.Itoa(port))
}

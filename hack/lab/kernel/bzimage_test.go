package kernel

import (
	"bytes"
	"encoding/binary"
	"os/exec"
	"strings"
	"testing"
)

// bzImage makes one with the given payload at offset 16 of its second part.
func bzImage(body []byte, setupSects byte) []byte {
	sects := int(setupSects)
	if sects == 0 {
		sects = 4
	}
	b := make([]byte, (sects+1)*sector+16)
	b[offSetupSects] = setupSects
	copy(b[offMagic:], "HdrS")
	binary.LittleEndian.PutUint16(b[offVersion:], 0x20f)
	binary.LittleEndian.PutUint32(b[offPayloadOffset:], 16)
	binary.LittleEndian.PutUint32(b[offPayloadLength:], uint32(len(body)))
	return append(append(b, body...), "tail"...)
}

func TestPayload(t *testing.T) {
	body := []byte("compressed\x2a\x00\x00\x00")
	for _, sects := range []byte{0, 27} {
		data, size, err := payload(bzImage(body, sects))
		if string(data) != "compressed" || size != 42 || err != nil {
			t.Errorf("%d sectors: got %q, %d, %v", sects, data, size, err)
		}
	}
}

func TestPayloadRefuses(t *testing.T) {
	good := bzImage([]byte("compressed\x2a\x00\x00\x00"), 4)
	change := func(off int, b ...byte) []byte {
		c := bytes.Clone(good)
		copy(c[off:], b)
		return c
	}
	for name, in := range map[string][]byte{
		"empty":     nil,
		"magic":     change(offMagic, 'x'),
		"old":       change(offVersion, 7, 2),
		"too long":  change(offPayloadLength, 0xff, 0xff),
		"negative":  change(offPayloadOffset, 0xff, 0xff, 0xff, 0xff),
		"too short": change(offPayloadLength, 3, 0, 0, 0),
	} {
		if _, _, err := payload(in); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestDecompress(t *testing.T) {
	for _, tool := range []string{"xz", "zstd", "gzip"} {
		t.Run(tool, func(t *testing.T) {
			if _, err := exec.LookPath(tool); err != nil {
				t.Skipf("no %s here", tool)
			}
			cmd := exec.Command(tool, "-c")
			cmd.Stdin = strings.NewReader("hello")
			packed, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			got, err := decompress(packed)
			if string(got) != "hello" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
			if _, err := decompress(packed[:len(packed)-6]); err == nil {
				t.Error("a cut stream was accepted")
			}
		})
	}
	if got, err := decompress([]byte("\x7fELF")); string(got) != "\x7fELF" || err != nil {
		t.Errorf("not compressed: got %q, %v", got, err)
	}
}

func TestVmlinuxChecksSize(t *testing.T) {
	_, err := vmlinux(bzImage([]byte("not compressed\x01\x00\x00\x00"), 4))
	if err == nil || !strings.Contains(err.Error(), "14 bytes") {
		t.Errorf("got %v, want an error about the size", err)
	}
}

func TestHasNote(t *testing.T) {
	note := func(typ uint32, name, desc string) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(name)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(desc)))
		b = binary.LittleEndian.AppendUint32(b, typ)
		return append(append(b, name...), desc...)
	}
	notes := append(note(5, "Linu", "xxxx"), note(18, "Xen\x00", "addr")...)
	if !hasNote(notes, "Xen\x00", 18) {
		t.Error("the note was not found")
	}
	if hasNote(notes, "Xen\x00", 5) || hasNote(notes[:len(notes)-1], "Xen\x00", 18) {
		t.Error("a note was found that is not there")
	}
}

package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
)

// The setup header of a bzImage (Documentation/arch/x86/boot.rst).
const (
	offSetupSects    = 0x1f1
	offMagic         = 0x202 // "HdrS"
	offVersion       = 0x206
	offPayloadOffset = 0x248 // from version 2.08
	offPayloadLength = 0x24c
	headerEnd        = 0x250
	sector           = 512
)

// payload is the compressed vmlinux in a bzImage and its uncompressed size (in
// the lower 32 bits), which the build appends to it.
func payload(bz []byte) (data []byte, size uint32, err error) {
	le := binary.LittleEndian
	if len(bz) < headerEnd || string(bz[offMagic:offMagic+4]) != "HdrS" {
		return nil, 0, errors.New("not a bzImage")
	}
	if v := le.Uint16(bz[offVersion:]); v < 0x208 {
		return nil, 0, fmt.Errorf("boot protocol %#x is older than 2.08", v)
	}
	sects := int(bz[offSetupSects])
	if sects == 0 {
		sects = 4
	}
	from := (sects+1)*sector + int(le.Uint32(bz[offPayloadOffset:]))
	to := from + int(le.Uint32(bz[offPayloadLength:]))
	if to > len(bz) || to < from+8 {
		return nil, 0, errors.New("the payload is not inside the bzImage")
	}
	return bz[from : to-4], le.Uint32(bz[to-4:]), nil
}

// compressions by their magic numbers; the tools read stdin and write stdout.
var compressions = []struct {
	magic string
	tool  []string
}{
	{"\xfd7zXZ\x00", []string{"xz", "-dc"}},
	{"\x28\xb5\x2f\xfd", []string{"zstd", "-dcq"}},
	{"\x1f\x8b", []string{"gzip", "-dc"}},
}

// decompress gives back what is not compressed.
func decompress(data []byte) ([]byte, error) {
	for _, c := range compressions {
		if !bytes.HasPrefix(data, []byte(c.magic)) {
			continue
		}
		cmd := exec.Command(c.tool[0], c.tool[1:]...)
		cmd.Stdin = bytes.NewReader(data)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %s", c.tool[0], err, bytes.TrimSpace(stderr.Bytes()))
		}
		return out, nil
	}
	return data, nil
}

// vmlinux takes the ELF file out of a bzImage. QEMU enters it directly (PVH),
// which saves the seconds that unpacking takes inside the guest.
func vmlinux(bz []byte) ([]byte, error) {
	data, size, err := payload(bz)
	if err != nil {
		return nil, err
	}
	out, err := decompress(data)
	if err != nil {
		return nil, err
	}
	if uint32(len(out)) != size {
		return nil, fmt.Errorf("vmlinux has %d bytes, its header says %d", len(out), size)
	}
	return out, checkPVH(out)
}

// checkPVH looks for the note that names the 32-bit entry point.
func checkPVH(vmlinux []byte) error {
	f, err := elf.NewFile(bytes.NewReader(vmlinux))
	if err != nil {
		return err
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		notes := make([]byte, p.Filesz)
		if _, err := p.ReadAt(notes, 0); err != nil {
			return fmt.Errorf("read elf notes: %w", err)
		}
		if hasNote(notes, "Xen\x00", 18) { // XEN_ELFNOTE_PHYS32_ENTRY
			return nil
		}
	}
	return errors.New("vmlinux has no PVH entry point (CONFIG_PVH)")
}

func hasNote(b []byte, name string, typ uint32) bool {
	le := binary.LittleEndian
	for len(b) >= 12 {
		nameLen, descLen := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:]))
		next := 12 + align4(nameLen) + align4(descLen)
		if next > uint64(len(b)) {
			return false
		}
		if le.Uint32(b[8:]) == typ && string(b[12:12+nameLen]) == name {
			return true
		}
		b = b[next:]
	}
	return false
}

func align4(n uint64) uint64 { return (n + 3) &^ 3 }

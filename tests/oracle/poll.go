package oracle

import (
	"fmt"
	"strings"

	"github.com/pureverbs/rdma/uverbs"
)

// maxPoll bounds a poll, for a mark has to name all completions in one path.
const maxPoll = 20

func (r *Runner) poll(s *Step) string {
	wcs := r.wcs[:min(int(s.num(1)), len(r.wcs))]
	n, err := at(r.cqs, s.arg(0)).Poll(wcs)
	if s.has("bad") {
		return verdict(err)
	}
	var b strings.Builder
	fmt.Fprint(&b, n)
	if err != nil {
		b.WriteString(" refused")
	}
	for i := range wcs[:n] {
		b.WriteString("; ")
		b.WriteString(words(&wcs[i]))
	}
	return b.String()
}

// words says of a completion what means something in it: what libibverbs does not write is
// nobody's business.
func words(wc *uverbs.WC) string {
	if wc.Status != uverbs.WCSuccess {
		return fmt.Sprintf("%#x status %d vendor %#x qp %#x", wc.ID, wc.Status, wc.VendorErr, wc.QPNum)
	}
	text := fmt.Sprintf("%#x op %d flags %#x qp %#x", wc.ID, wc.Opcode, wc.Flags, wc.QPNum)
	switch wc.Opcode {
	case uverbs.WCRDMARead, uverbs.WCCompareSwap, uverbs.WCFetchAdd:
		text += fmt.Sprintf(" len %d", wc.ByteLen)
	case uverbs.WCRecv, uverbs.WCRecvWriteImm:
		text += fmt.Sprintf(" len %d src %#x slid %#x sl %d path %d", wc.ByteLen, wc.SrcQP, wc.SLID, wc.SL, wc.PathBits)
		switch {
		case wc.HasImm():
			text += fmt.Sprintf(" imm %#x", wc.Imm)
		case wc.HasInv():
			text += fmt.Sprintf(" inv %#x", wc.InvKey)
		default:
			text += fmt.Sprintf(" pkey %#x", wc.PKeyIndex)
		}
	}
	return text
}

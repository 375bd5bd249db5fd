package flows

import (
	"context"
	"errors"
	"io"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// sender is the client's end of the transfer of a file.
type sender struct {
	pieces
	to place
}

// SendFile sends a file to a server that runs ReceiveFile.
func SendFile(ctx context.Context, addr, name string, file io.Reader, system ...rdmacm.Option) (err error) {
	var s sender
	// 1 connection
	conn, err := rdmacm.Dial(ctx, addr, &rdmacm.Options{System: system, Prepare: s.prepare})
	if err != nil {
		return err
	}
	defer func() {
		// 8 disconnect
		err = errors.Join(err, conn.Close())
	}()
	// 2 address and key of the receiver's memory
	if s.to, err = parsePlace(conn.PrivateData()); err != nil {
		return err
	}
	if s.data, err = conn.AllocMR(chunk, uverbs.AccessLocalWrite); err != nil {
		return err
	}
	// 3 name
	if err := s.write(ctx, copy(s.data.Bytes(), name)); err != nil {
		return err
	}
	// 4 ready
	if err := s.hear(ctx, sayReady); err != nil {
		return err
	}
	if err := s.content(ctx, file); err != nil {
		return err
	}
	// 7 end, and done
	if err := s.write(ctx, 0); err != nil {
		return err
	}
	return s.hear(ctx, sayDone)
}

// content sends the file, piece by piece.
func (s *sender) content(ctx context.Context, file io.Reader) error {
	for {
		n, err := io.ReadFull(file, s.data.Bytes())
		if n > 0 {
			// 5 piece
			if err := s.write(ctx, n); err != nil {
				return err
			}
			// 6 ready for the next one
			if err := s.hear(ctx, sayReady); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// write writes n bytes into the receiver's memory and tells it n: by immediate data, or where
// the device has none (siw) by a message that follows. Both arrive in this order.
func (s *sender) write(ctx context.Context, n int) error {
	wr := uverbs.SendWR{
		Opcode: uverbs.OpRDMAWriteImm, SGL: []uverbs.SGE{s.data.SGE(0, n)},
		RemoteAddr: s.to.addr, RKey: s.to.key, Imm: uint32(n),
	}
	if s.conn.QP().Supports(uverbs.OpRDMAWriteImm) {
		return s.post(ctx, wr)
	}
	wr.Opcode, wr.Imm = uverbs.OpRDMAWrite, 0
	return s.post(ctx, wr, s.number(uint32(n)))
}

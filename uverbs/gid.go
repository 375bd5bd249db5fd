package uverbs

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// GIDType is the protocol that a GID stands for: enum ib_uverbs_gid_type.
type GIDType uint32

// The GID types. RoCE v1 and v2 never talk to each other.
const (
	GIDTypeIB     GIDType = abi.IB_UVERBS_GID_TYPE_IB
	GIDTypeRoCEv1 GIDType = abi.IB_UVERBS_GID_TYPE_ROCE_V1
	GIDTypeRoCEv2 GIDType = abi.IB_UVERBS_GID_TYPE_ROCE_V2
)

func (t GIDType) String() string {
	switch t {
	case GIDTypeIB:
		return "IB"
	case GIDTypeRoCEv1:
		return "RoCE v1"
	case GIDTypeRoCEv2:
		return "RoCE v2"
	}
	return "type " + utoa(uint32(t))
}

// GIDEntry is one entry of a port's GID table.
type GIDEntry struct {
	GID     GID
	Index   int
	Port    int
	Type    GIDType
	IfIndex int // of the network interface, in that interface's namespace; 0 if there is none
}

// maxPort is the last port that the kernel's queries can name.
const maxPort = 255

// GIDTable lists the non-empty entries of the GID tables of all ports. The tables change
// with the addresses of the network interfaces.
func (c *Context) GIDTable() ([]GIDEntry, error) {
	const op = "query GID table"
	size := len(uapi.Bytes(new(abi.IbUverbsGidEntry)))
	most := (uapi.NoLimit - 1) / size // an attribute's length has 16 bits: large tables are cut to what fits
	total := 0
	for port := 1; port <= min(c.dev.NumPorts(), maxPort) && total < most; port++ {
		a, err := c.QueryPort(uint8(port))
		if err != nil {
			return nil, err
		}
		total = min(total+a.GIDTableLen, most)
	}
	if total == 0 {
		return nil, nil
	}
	if err := c.begin(op); err != nil {
		return nil, err
	}
	defer c.end()
	raw := make([]abi.IbUverbsGidEntry, total)
	var n uint64
	cmd := c.k.command(uapi.QueryGIDTable).
		Const(abi.UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, uint64(size)).
		Out(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, uapi.SliceBytes(raw)).
		Out(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, uapi.Bytes(&n))
	if err := cmd.Do(c.k.file); err != nil {
		return nil, wrap(op, c.device, err)
	}
	if n > uint64(len(raw)) {
		return nil, wrap(op, c.device, errors.Join(ErrCorrupt, syscall.EOVERFLOW))
	}
	table := make([]GIDEntry, n)
	for i := range table {
		table[i] = gidEntry(&raw[i])
	}
	return table, nil
}

func gidEntry(e *abi.IbUverbsGidEntry) GIDEntry {
	g := GIDEntry{Index: int(e.GidIndex), Port: int(e.PortNum), Type: GIDType(e.GidType), IfIndex: int(e.NetdevIfindex)}
	copy(g.GID[:], uapi.Bytes(&e.Gid))
	return g
}

// QueryGID asks for one entry of a port's GID table. Errors: ENODATA for an empty entry,
// EINVAL beyond the table. Source: ibv_query_gid_ex(3).
func (c *Context) QueryGID(port uint8, index int) (GIDEntry, error) {
	const op = "query GID"
	if index < 0 {
		return GIDEntry{}, invalid(op, c.device, "index %d", index)
	}
	if err := c.begin(op); err != nil {
		return GIDEntry{}, err
	}
	defer c.end()
	e, err := c.queryGID(port, index)
	return e, wrap(op, fmt.Sprintf("%s port %d index %d", c.device, port, index), err)
}

func (c *Context) queryGID(port uint8, index int) (GIDEntry, error) {
	var e abi.IbUverbsGidEntry
	err := c.k.command(uapi.QueryGIDEntry).
		Const(abi.UVERBS_ATTR_QUERY_GID_ENTRY_PORT, uint64(port)).
		Const(abi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, uint64(index)).
		Flags(abi.UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0).
		Out(abi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, uapi.Bytes(&e)).
		Do(c.k.file)
	return gidEntry(&e), err
}

// FindGID chooses the entry of a port's GID table for a queue pair that is set up by hand:
// the one with the wanted address and, where the port speaks RoCE, of type v2, never its v1
// twin. Without a match the error shows the table.
func FindGID(table []GIDEntry, port int, addr netip.Addr) (GIDEntry, error) {
	want := GID(addr.WithZone("").As16())
	for _, e := range table {
		if e.Port == port && e.GID == want && e.Type != GIDTypeRoCEv1 {
			return e, nil
		}
	}
	shown := ""
	for _, e := range table {
		shown += fmt.Sprintf(" [port %d index %d %v %v]", e.Port, e.Index, e.GID, e.Type)
	}
	return GIDEntry{}, invalid("find GID", "", "no RoCE v2 or IB entry for %v on port %d; the table is:%s", addr, port, shown)
}

// QueryPKey returns entry index of a port's partition key table. Source: ibv_query_pkey(3).
func (c *Context) QueryPKey(port uint8, index int) (uint16, error) {
	key, err := c.dev.sys.PKey(&c.dev.info, int(port), index)
	return key, wrap("query P_Key", c.device, err)
}

// PKeyIndex finds a partition key in a port's table; the membership bit (the highest) does
// not count, but an entry with full membership is preferred. Errors: ENOENT if it is not
// there. Source: ibv_get_pkey_index(3).
func (c *Context) PKeyIndex(port uint8, key uint16) (int, error) {
	const op, full = "find P_Key", 1 << 15
	a, err := c.QueryPort(port)
	if err != nil {
		return 0, err
	}
	found := -1
	for i := range a.PKeyTableLen {
		got, err := c.QueryPKey(port, i)
		switch {
		case err != nil:
			return 0, err
		case got&^full != key&^full:
		case got&full != 0:
			return i, nil
		case found < 0:
			found = i
		}
	}
	if found < 0 {
		return 0, wrap(op, fmt.Sprintf("%s port %d", c.device, port), syscall.ENOENT)
	}
	return found, nil
}

package uverbs

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestRW41RNRTimerCodes: code 0 is the longest delay, and rounding is up.
func TestRW41RNRTimerCodes(t *testing.T) {
	for code, want := range map[uint8]time.Duration{
		0: 655360 * time.Microsecond, 1: 10 * time.Microsecond, 12: 640 * time.Microsecond, 31: 491520 * time.Microsecond,
	} {
		if got := RNRTimer(code); got != want {
			t.Errorf("code %d is %v, want %v", code, got, want)
		}
	}
	for code := uint8(1); code < 32; code++ {
		if got := RNRTimerCode(RNRTimer(code)); got != code {
			t.Errorf("the delay of code %d gets code %d", code, got)
		}
	}
	for d, want := range map[time.Duration]uint8{0: 1, 11 * time.Microsecond: 2, 500 * time.Millisecond: 0, time.Hour: 0} {
		if got := RNRTimerCode(d); got != want {
			t.Errorf("%v gets code %d, want %d", d, got, want)
		}
	}
}

func TestStepsNameTheAttribute(t *testing.T) {
	full := QPAttrState | QPAttrPKeyIndex | QPAttrPort | QPAttrAccessFlags
	for _, tt := range []struct {
		from, to QPState
		mask     QPAttrMask
		want     string // "" is fine
	}{
		{StateReset, StateInit, full, ""},
		{StateReset, StateInit, full &^ QPAttrPort, "RESET to INIT needs PortNum"},
		{StateReset, StateInit, full | QPAttrQKey, "RESET to INIT does not take QKey"},
		{StateReset, StateRTS, QPAttrState, "cannot go from RESET to RTS"},
		{StateInit, StateRTR, QPAttrState | QPAttrAV | QPAttrPathMTU, "needs RQPSN, MinRNRTimer, MaxDestRDAtomic, DestQPNum"},
		{StateRTS, StateError, QPAttrState, ""},
		{StateSQD, StateReset, QPAttrState | QPAttrCap, "does not take Cap"},
		{StateRTS, StateRTS, QPAttrMinRNRTimer, ""},
	} {
		err := QPTypeRC.checkStep(tt.from, tt.to, tt.mask)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%v to %v: %v", tt.from, tt.to, err)
		case tt.want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%v to %v: got %v, want %q", tt.from, tt.to, err, tt.want)
		}
	}
}

// TestRW35FindGID: the v2 entry of the wanted address, never its v1 twin or index 0.
func TestRW35FindGID(t *testing.T) {
	entry := func(i int, addr string, typ GIDType) GIDEntry {
		return GIDEntry{Index: i, Port: 1, Type: typ, GID: netip.MustParseAddr(addr).As16()}
	}
	table := []GIDEntry{
		entry(0, "fe80::1", GIDTypeRoCEv1), entry(1, "fe80::1", GIDTypeRoCEv2),
		entry(2, "::ffff:10.9.0.1", GIDTypeRoCEv1), entry(3, "::ffff:10.9.0.1", GIDTypeRoCEv2),
		entry(4, "::ffff:10.9.0.5", GIDTypeRoCEv2), entry(5, "2001:db8::1", GIDTypeRoCEv2),
	}
	for addr, want := range map[string]int{"10.9.0.1": 3, "10.9.0.5": 4, "2001:db8::1": 5, "fe80::1%eth0": 1} {
		if got, err := FindGID(table, 1, netip.MustParseAddr(addr)); err != nil || got.Index != want {
			t.Errorf("%s: got index %d, %v; want %d", addr, got.Index, err, want)
		}
	}
	if _, err := FindGID(table, 1, netip.MustParseAddr("10.9.0.9")); err == nil || !strings.Contains(err.Error(), "10.9.0.5") {
		t.Errorf("unknown address: got %v, want an error that shows the table", err)
	}
}

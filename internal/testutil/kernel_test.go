package testutil

import "testing"

func TestKernelVersions(t *testing.T) {
	for s, want := range map[string]Kernel{"5.10": {5, 10}, "6.1.0-57-amd64": {6, 1}, "7.2.13+deb14-amd64": {7, 2}} {
		if got, err := ParseKernel(s); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", s, got, err, want)
		}
	}
	if _, err := ParseKernel("newest"); err == nil {
		t.Error("a name is no version")
	}
	for _, tt := range []struct {
		k, v string
		want bool
	}{{"6.1", "6.1", true}, {"6.1", "5.10", true}, {"5.10", "5.9", true}, {"5.10", "6.1", false}, {"6.12", "6.3", true}} {
		if got := MustKernel(tt.k).AtLeast(MustKernel(tt.v)); got != tt.want {
			t.Errorf("%s at least %s: %v", tt.k, tt.v, got)
		}
	}
}

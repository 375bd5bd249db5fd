package main

import (
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	tests := []struct {
		text string
		want int
		ok   bool
	}{
		{"0", 0, true},
		{"56", 56, true},
		{"56b", 56, true},
		{"4k", 4096, true},
		{"4K", 4096, true},
		{"64KiB", 65536, true},
		{"64 KiB", 65536, true},
		{"64kB", 64000, true},
		{"1MiB", 1 << 20, true},
		{"1m", 1 << 20, true},
		{"1MB", 1e6, true},
		{"1.5k", 1536, true},
		{"1G", 1 << 30, true},
		{"", 0, false},
		{"k", 0, false},
		{"-1", 0, false},
		{"1.5", 0, false},
		{"1e3", 0, false},
		{"0x10", 0, false},
		{"1..5k", 0, false},
		{"4q", 0, false},
		{"4kk", 0, false},
		{"NaN", 0, false},
		{"inf", 0, false},
		{"2G", 0, false},
		{"99999999999999999999", 0, false},
	}
	for _, tt := range tests {
		got, err := parseSize(tt.text)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("parseSize(%q) = %d, %v, want %d, ok %v", tt.text, got, err, tt.want, tt.ok)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int]string{
		0: "0 bytes", 1: "1 byte", 56: "56 bytes", 1023: "1023 bytes", 1024: "1 KiB", 1025: "1025 bytes",
		1 << 20: "1 MiB", 3 << 19: "1536 KiB", 1 << 30: "1 GiB",
	} {
		if got := formatSize(n); got != want {
			t.Errorf("formatSize(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestParseSeconds(t *testing.T) {
	tests := []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"1", time.Second, true},
		{"0.2", 200 * time.Millisecond, true},
		{"0", 0, true},
		{"250ms", 250 * time.Millisecond, true},
		{"1m", time.Minute, true},
		{"", 0, false},
		{"soon", 0, false},
		{"NaN", 0, false},
		{"1e300", 0, false},
	}
	for _, tt := range tests {
		got, err := parseSeconds(tt.text)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("parseSeconds(%q) = %v, %v, want %v, ok %v", tt.text, got, err, tt.want, tt.ok)
		}
	}
}

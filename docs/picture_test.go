package docs

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
)

// TestPicture: the picture of the README is XML, small, needs nothing from elsewhere, can be read
// without animations, and does not tell where it was made.
func TestPicture(t *testing.T) {
	picture := read(t, "picture.svg")
	dec, texts := xml.NewDecoder(strings.NewReader(picture)), 0
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			if e.Name.Space != "http://www.w3.org/2000/svg" {
				t.Errorf("element %v is not one of SVG", e.Name)
			}
			if e.Name.Local == "text" {
				texts++
			}
		}
	}
	if len(picture) > 40_000 || texts < 15 {
		t.Errorf("%d bytes, %d lines of text", len(picture), texts)
	}
	for _, want := range []string{"prefers-reduced-motion: no-preference", "prefers-color-scheme: dark", "$ rdma-ping devices", "$ rdma-ping -c 5 10.9.0.1"} {
		if !strings.Contains(picture, want) {
			t.Errorf("no %q in it", want)
		}
	}
	if m := regexp.MustCompile(`@font-face|@import|data:|href|<script|/(work|tmp|root|home|src|host)/|@\w+:`).FindString(picture); m != "" {
		t.Errorf("there is %q in it", m)
	}
	if !strings.Contains(read(t, "../README.md"), "(docs/picture.svg)") {
		t.Error("README.md does not show it")
	}
}

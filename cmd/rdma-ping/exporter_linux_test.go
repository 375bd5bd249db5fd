package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
)

// scraped is an exporter that runs, and how to ask it.
type scraped struct {
	*command
	url   string
	ended bool
}

// export starts an exporter, which must end well with the test.
func export(t *testing.T, k *fakekernel.Kernel, args ...string) *scraped {
	t.Helper()
	s := &scraped{command: start(t, k, append([]string{"--exporter", "127.0.0.1:0"}, args...)...)}
	s.out.await(t, "serving metrics")
	s.url = regexp.MustCompile(`http://[0-9.:]+/`).FindString(s.out.String())
	t.Cleanup(s.end)
	return s
}

// end is Ctrl-C.
func (s *scraped) end() {
	s.t.Helper()
	if s.ended {
		return
	}
	s.ended = true
	if status := s.stop(); status != statusOK || s.errOut.String() != "" {
		s.t.Errorf("exporter: status %d, stderr %q", status, s.errOut.String())
	}
	if !strings.HasSuffix(s.out.String(), "stopped\n") {
		s.t.Errorf("exporter: stdout %q", s.out.String())
	}
}

// get asks, and leaves no connection behind.
func (s *scraped) get(method, path, accept string) (int, http.Header, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, http.NoBody)
	testutil.Must(s.t, err)
	req.Header.Set("Accept", accept)
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	testutil.Must(s.t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	testutil.Must(s.t, err)
	return res.StatusCode, res.Header, string(b)
}

// families are the metrics, as Prometheus reads them.
func (s *scraped) families() map[string]*dto.MetricFamily {
	s.t.Helper()
	status, _, text := s.get("GET", "metrics", "")
	if status != http.StatusOK {
		s.t.Fatalf("status %d: %s", status, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	testutil.Must(s.t, err)
	return families
}

// value is a metric with its labels in the order of their names: NAME VALUE VALUE. It is -1 if
// there is none, of a histogram it is the number of observations.
func (s *scraped) value(name string, labels ...string) float64 {
	s.t.Helper()
	for _, m := range s.families()[name].GetMetric() {
		var has []string
		for _, l := range m.GetLabel() {
			has = append(has, l.GetValue())
		}
		if strings.Join(has, " ") != strings.Join(labels, " ") {
			continue
		}
		if h := m.GetHistogram(); h != nil {
			return float64(h.GetSampleCount())
		}
		return m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return -1
}

// atLeast waits until a metric is large enough.
func (s *scraped) atLeast(want float64, name string, labels ...string) {
	s.t.Helper()
	eventually(s.t, func() string {
		if got := s.value(name, labels...); got < want {
			return name + " is too small; output:\n" + s.out.String()
		}
		return ""
	})
}

// TestExporter pings a mesh of which one host is there, and each of the others is away in a
// way of its own.
func TestExporter(t *testing.T) {
	silent := netip.MustParseAddr("10.9.0.77")
	k := newKernel(t, fakekernel.Options{Silent: []netip.Addr{silent}})
	serve(t, k)
	hosts := filepath.Join(t.TempDir(), "hosts")
	testutil.Must(t, os.WriteFile(hosts, []byte("192.0.2.1 # no way there\n10.9.0.77\n"), 0o666))
	s := export(t, k, "-i", "1ms", "--targets", hosts, serverAddr, "10.9.0.1:7999")

	// All is there from the start, whatever has happened by now.
	first := s.families()
	for _, target := range []string{serverAddr, "10.9.0.1:7999", "192.0.2.1", silent.String()} {
		for _, name := range []string{"rtt_seconds", "requests_total", "connects_total", "connected"} {
			if s.value("rdma_ping_"+name, target) < 0 {
				t.Errorf("there is no %s of %s", name, target)
			}
		}
		for _, reason := range lostReasons() {
			if got := s.value("rdma_ping_lost_total", reason, target); got != 0 {
				t.Errorf("%s lost by %s: %v", target, reason, got)
			}
		}
		for _, reason := range connectReasons() {
			if s.value("rdma_ping_connect_errors_total", reason, target) < 0 {
				t.Errorf("there are no %s of %s", reason, target)
			}
		}
	}
	if n := len(first["rdma_ping_connect_errors_total"].GetMetric()); n != 4*len(connectReasons()) {
		t.Errorf("%d series of errors", n)
	}
	s.atLeast(3, "rdma_ping_requests_total", serverAddr)
	s.atLeast(3, "rdma_ping_rtt_seconds", serverAddr)
	s.atLeast(1, "rdma_ping_connected", serverAddr)
	s.atLeast(1, "rdma_ping_peer_info", "10.9.0.1:7174", "rxe0", serverAddr)
	if _, _, text := s.get("GET", "metrics", ""); strings.Count(text, `target="10.9.0.1"`) != 39 {
		t.Errorf("the number of series that monitoring.md says is not that of\n%s", text)
	}
	s.atLeast(1, "rdma_ping_connect_errors_total", reasonRefused, "10.9.0.1:7999")
	s.atLeast(1, "rdma_ping_connect_errors_total", reasonNoRoute, "192.0.2.1")
	s.atLeast(1, "rdma_ping_connect_errors_total", reasonUnreachable, silent.String())
	for _, target := range []string{"10.9.0.1:7999", "192.0.2.1", silent.String()} {
		if up, sent := s.value("rdma_ping_connected", target), s.value("rdma_ping_requests_total", target); up != 0 || sent != 0 {
			t.Errorf("%s: connected %v, %v requests", target, up, sent)
		}
	}
	if n := s.value("rdma_ping_connects_total", serverAddr); n != 1 {
		t.Errorf("%v connections", n)
	}
	s.out.await(t, "10.9.0.1: connected to 10.9.0.1:7174 over rxe0\n")
	s.out.await(t, "10.9.0.1:7999: nobody listens on 10.9.0.1:7999")
	s.out.await(t, "192.0.2.1: resolve address 192.0.2.1:7174: network is unreachable")
}

// TestExporterHistogram reads the round trips in both forms.
func TestExporterHistogram(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	serve(t, k)
	s := export(t, k, "-i", "1ms", serverAddr)
	s.atLeast(20, "rdma_ping_rtt_seconds", serverAddr)
	h := s.families()["rdma_ping_rtt_seconds"].GetMetric()[0].GetHistogram()
	buckets := h.GetBucket()
	if len(buckets) != 20 || buckets[0].GetUpperBound() != 1e-6 || buckets[2].GetUpperBound() != 5e-6 || buckets[18].GetUpperBound() != 1 {
		t.Errorf("buckets %v", buckets)
	}
	if mean := h.GetSampleSum() / float64(h.GetSampleCount()); mean < 1e-7 || mean > 1 {
		t.Errorf("a mean of %v s", mean)
	}
	_, header, body := s.get("GET", "metrics", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	d := expfmt.NewDecoder(strings.NewReader(body), expfmt.ResponseFormat(header))
	for {
		var f dto.MetricFamily
		testutil.Must(t, d.Decode(&f)) // or the end, without it
		if f.GetName() != "rdma_ping_rtt_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		if h.GetSchema() < 3 || len(h.GetPositiveSpan()) == 0 || h.GetSampleCount() < 20 {
			t.Errorf("native histogram: %v", h)
		}
		return
	}
}

// TestExporterReconnects: the server goes and comes back.
func TestExporterReconnects(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	server := start(t, k, "serve")
	server.out.await(t, "listening on")
	s := export(t, k, "-i", "1ms", serverAddr)
	s.atLeast(3, "rdma_ping_rtt_seconds", serverAddr)
	if status := server.stop(); status != statusOK {
		t.Errorf("serve: status %d", status)
	}
	s.atLeast(1, "rdma_ping_connect_errors_total", reasonRefused, serverAddr)
	if up, info := s.value("rdma_ping_connected", serverAddr), s.value("rdma_ping_peer_info", "10.9.0.1:7174", "rxe0", serverAddr); up != 0 || info != -1 {
		t.Errorf("without a server: connected %v, info %v", up, info)
	}
	answered := s.value("rdma_ping_rtt_seconds", serverAddr)
	serve(t, k)
	s.atLeast(answered+3, "rdma_ping_rtt_seconds", serverAddr)
	if n := s.value("rdma_ping_connects_total", serverAddr); n != 2 {
		t.Errorf("%v connections", n)
	}
	if up := s.value("rdma_ping_connected", serverAddr); up != 1 {
		t.Errorf("connected %v", up)
	}
	mustMatch(t, "output", s.out.String(), `serving metrics on \S+/metrics, pinging 1 targets\n`+
		`10\.9\.0\.1: connected to [^\n]+\n10\.9\.0\.1: the peer closed the connection\n10\.9\.0\.1: nobody listens [^\n]+\n10\.9\.0\.1: connected to [^\n]+\n`)
}

// TestExporterLost has answers wrong, late, and the connection end in the middle of one.
func TestExporterLost(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	oddServer(t, k, func(seq uint64, slot int, msg []byte) []int {
		switch seq {
		case 2:
			msg[len(msg)-1] ^= 1
		case 3:
			return nil
		}
		return []int{slot}
	})
	s := export(t, k, "-i", "1ms", "-W", "50ms", serverAddr)
	s.atLeast(1, "rdma_ping_lost_total", lostCorrupt, serverAddr)
	s.atLeast(1, "rdma_ping_lost_total", lostTimeout, serverAddr)
	s.atLeast(3, "rdma_ping_rtt_seconds", serverAddr)
	if up := s.value("rdma_ping_connected", serverAddr); up != 1 {
		t.Errorf("connected %v", up)
	}
}

func TestExporterDisconnected(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	oneSession(t, k, func(ctx context.Context, ln *rdmacm.Listener) error {
		s, err := accepted(ctx, ln)
		if err == nil {
			_, _, err = s.link.recv.wait(ctx)
		}
		if err == nil {
			err = s.link.close()
		}
		return err
	})
	s := export(t, k, serverAddr)
	s.atLeast(1, "rdma_ping_lost_total", lostDisconnected, serverAddr)
	if sent, answered := s.value("rdma_ping_requests_total", serverAddr), s.value("rdma_ping_rtt_seconds", serverAddr); sent != 1 || answered != 0 {
		t.Errorf("%v requests, %v answers", sent, answered)
	}
}

// TestExporterPages: what there is besides the metrics.
func TestExporterPages(t *testing.T) {
	k := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{}}) // which may come yet
	s := export(t, k, "host-1.example")
	for path, want := range map[string]string{
		"":        `(?s)<!DOCTYPE html>.*href="/metrics".*`,
		"healthz": "ok\n",
		"metrics": `(?s).*process_open_fds \d+\n.*rdma_ping_build_info\{goversion="go[^"]+",version="[^"]+"\} 1\n.*`,
	} {
		if status, _, text := s.get("GET", path, ""); status != http.StatusOK || !regexp.MustCompile("^(?:"+want+")$").MatchString(text) {
			t.Errorf("/%s: status %d:\n%s", path, status, text)
		}
	}
	for path, want := range map[string]int{"GET x": 404, "POST metrics": 405, "GET healthz/x": 404} {
		method, path, _ := strings.Cut(path, " ")
		if status, _, _ := s.get(method, path, ""); status != want {
			t.Errorf("%s %s: status %d", method, path, status)
		}
	}
}

// TestExporterNoDevice: what this host lacks is in the metrics, and ends nothing.
func TestExporterNoDevice(t *testing.T) {
	for reason, opts := range map[string]fakekernel.Options{
		reasonNoDevice: {NoCM: true}, reasonMemlock: {Memlock: 1},
		reasonPermission: {},
	} {
		k := newKernel(t, opts)
		if reason == reasonPermission {
			k.Fail(fakekernel.Kind(fakekernel.CallOpen), syscall.EPERM)
		}
		s := export(t, k, serverAddr)
		s.atLeast(1, "rdma_ping_connect_errors_total", reason, serverAddr)
	}
}

// TestExporterRefused: what cannot be is said before anything is sent.
func TestExporterRefused(t *testing.T) {
	var sent output
	k := newKernel(t, fakekernel.Options{Log: func(c fakekernel.Call) { sent.Write([]byte("x")) }})
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	defer taken.Close()
	for args, want := range map[string]string{
		"--exporter 9417 10.9.0.1":                          `--exporter "9417": want \[ADDR\]:PORT, like :9417`,
		"--exporter :x 10.9.0.1":                            `--exporter ":x": want .*`,
		"--exporter :99999 10.9.0.1":                        `--exporter ":99999": want .*`,
		"--exporter= 10.9.0.1":                              `--exporter "": want .*`,
		"--exporter :0":                                     "no address: whom to ping.*",
		"--exporter :0 10.9.0.1 10.9.0.1":                   "10.9.0.1 is there twice",
		"--exporter :0 10.9.0.1 a_b,c":                      "address .*: neither an IP address nor a host name",
		"--exporter :0 -c 5 10.9.0.1":                       "--count does not go with --exporter",
		"--exporter :0 -q 10.9.0.1":                         "--quiet does not go with --exporter",
		"--exporter :0 --json 10.9.0.1":                     "--json does not go with --exporter",
		"--exporter :0 --plot x.svg 10.9.0.1":               "--plot does not go with --exporter",
		"--exporter :0 -i 0 10.9.0.1":                       "-i 0s: at least 1ms with --exporter.*",
		"--exporter :0 -I here 10.9.0.1":                    `source "here" is not an IP address`,
		"--exporter :0 --rping -s 0 10.9.0.1":               "--rping needs a size of at least 1.*",
		"--exporter :0 --targets /none":                     "--targets: open /none: no such file or directory",
		"--targets /none":                                   "--targets goes with --exporter",
		"--targets /none 10.9.0.1":                          "--targets goes with --exporter",
		"perf lat --exporter :0 10.9.0.1":                   "unknown flag: --exporter",
		"perf lat 10.9.0.1 10.9.0.2":                        "one address only.*",
		"--exporter " + taken.Addr().String() + " 10.9.0.1": "--exporter 127.*: listen tcp 127.*: bind: address already in use",
	} {
		status, out, errs := ping(t, k, strings.Fields(args)...)
		if status != statusError || out != "" {
			t.Errorf("%s: status %d, stdout %q", args, status, out)
		}
		mustMatch(t, "stderr of "+args, errs, "rdma-ping: "+want+"\n(Try 'rdma-ping --help'.\n)?")
		if strings.Count(errs, "\n") > 2 {
			t.Errorf("%s: more than a line: %s", args, errs)
		}
	}
	if n := len(sent.String()); n > 0 {
		t.Errorf("%d calls of the kernel", n)
	}
}

// TestExporterStops ends it while one target is being connected to and another waited for,
// and a client does not ask to the end. Nothing is left then, though the kernel is slow.
func TestExporterStops(t *testing.T) {
	silent := netip.MustParseAddr("10.9.0.77")
	var ending atomic.Bool
	k := newKernel(t, fakekernel.Options{Silent: []netip.Addr{silent}, CMTimeout: time.Hour, Log: func(fakekernel.Call) {
		if ending.Load() {
			time.Sleep(20 * time.Millisecond)
		}
	}})
	for _, request := range []string{"", "GET /metrics HTTP/1.1\r\n"} {
		s := export(t, k, silent.String(), "10.9.0.1")
		s.atLeast(1, "rdma_ping_connect_errors_total", reasonRefused, serverAddr)
		conn, err := net.Dial("tcp", strings.Trim(strings.TrimPrefix(s.url, "http:"), "/"))
		testutil.Must(t, err)
		_, err = io.WriteString(conn, request)
		testutil.Must(t, err)
		if request == "" {
			testutil.Must(t, conn.Close())
		}
		ending.Store(true)
		s.end()
		if diff := cmp.Diff(fakekernel.Counts{}, k.Counts()); diff != "" {
			t.Errorf("left behind (-want +got):\n%s", diff)
		}
		ending.Store(false)
		if request != "" {
			testutil.Must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
			if _, err := io.ReadAll(conn); err != nil {
				t.Errorf("the connection of the client is still there: %v", err)
			}
			conn.Close()
		}
	}
}

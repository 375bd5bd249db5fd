package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The types below are what the manifests may say, of Kubernetes' own: a field that is not
// there is misspelt, or to be looked up and added.
type (
	object struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   metadata
		Spec       yaml.Node
		Data       map[string]string
	}
	metadata struct {
		Name, Namespace     string
		Labels, Annotations map[string]string
	}
	daemonSet struct {
		Selector selector
		Template struct {
			Metadata metadata
			Spec     pod
		}
	}
	selector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	pod struct {
		HostNetwork       bool   `yaml:"hostNetwork"`
		PriorityClassName string `yaml:"priorityClassName"`
		RestartPolicy     string `yaml:"restartPolicy"`
		Affinity          struct {
			PodAntiAffinity struct {
				Required []struct {
					TopologyKey   string   `yaml:"topologyKey"`
					LabelSelector selector `yaml:"labelSelector"`
				} `yaml:"requiredDuringSchedulingIgnoredDuringExecution"`
			} `yaml:"podAntiAffinity"`
		}
		Containers []podContainer
		Volumes    []volume
	}
	volume struct {
		Name     string
		HostPath struct{ Path, Type string } `yaml:"hostPath"`
		Config   struct{ Name string }       `yaml:"configMap"`
	}
	podContainer struct {
		Name, Image     string
		ImagePullPolicy string `yaml:"imagePullPolicy"`
		Args            []string
		Ports           []struct {
			Name          string
			ContainerPort int `yaml:"containerPort"`
		}
		LivenessProbe struct {
			HTTPGet struct {
				Path string
				Port int
			} `yaml:"httpGet"`
		} `yaml:"livenessProbe"`
		Resources    struct{ Limits map[string]int }
		VolumeMounts []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
		} `yaml:"volumeMounts"`
		SecurityContext struct {
			Privileged               bool
			RunAsNonRoot             bool  `yaml:"runAsNonRoot"`
			RunAsUser                int   `yaml:"runAsUser"`
			RunAsGroup               int   `yaml:"runAsGroup"`
			AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
			Capabilities             struct{ Drop, Add []string }
			SeccompProfile           struct{ Type string } `yaml:"seccompProfile"`
		} `yaml:"securityContext"`
	}
	attachment struct{ Config string }

	// What is JSON within: of the CNI plugins, and of the two device plugins.
	network struct {
		CNIVersion, Name, Type, Master, Mode string
		IPAM                                 *ipam
		Plugins                              []struct {
			Type string
			IPAM *ipam
		}
	}
	ipam          struct{ Type, Range string }
	devicePlugins struct {
		PeriodicUpdateInterval int
		ConfigList             []struct {
			ResourceName string
			RDMAHCAMax   int
			Selectors    struct{ Vendors, IfNames []string }
		}
		ResourceList []struct {
			ResourcePrefix, ResourceName string
			Selectors                    struct {
				IsRDMA           bool
				Vendors, PFNames []string
			}
		}
	}
)

// cluster is what the manifests make, all together.
type cluster struct {
	networks  map[string]network
	resources map[string]bool
	configs   map[string]map[string]string
	pods      map[string]pod
	notes     map[string]map[string]string // annotations of pods
}

// TestManifests reads all of them strictly, and checks that what they name is there.
func TestManifests(t *testing.T) {
	c := readManifests(t)
	if len(c.pods) != 7 || len(c.networks) != 2 || len(c.resources) != 2 {
		t.Fatalf("got %d pods, %d networks and %d resources", len(c.pods), len(c.networks), len(c.resources))
	}
	for name, p := range c.pods {
		if len(p.Containers) != 1 {
			t.Errorf("%s has %d containers", name, len(p.Containers))
			continue
		}
		one := &p.Containers[0]
		for _, m := range one.VolumeMounts {
			if !slices.ContainsFunc(p.Volumes, func(v volume) bool { return v.Name == m.Name }) {
				t.Errorf("%s mounts %s, which is no volume", name, m.Name)
			}
		}
		for _, v := range p.Volumes {
			if v.Config.Name != "" && c.configs[v.Config.Name] == nil {
				t.Errorf("%s: there is no ConfigMap %s", name, v.Config.Name)
			}
		}
		if strings.HasPrefix(name, "rdma-ping") {
			c.checkOurs(t, name, &p, one)
			c.checkTargets(t, name, &p, one)
		}
	}
}

// checkOurs: a pod of ours has nodes, a network that leads to them, and no right that it does
// not need.
func (c *cluster) checkOurs(t *testing.T, name string, p *pod, one *podContainer) {
	t.Helper()
	s := &one.SecurityContext
	// Without a policy the tag "latest" makes the kubelet ask a registry.
	if one.Image != "localhost/rdma-ping:latest" || one.ImagePullPolicy != "IfNotPresent" || len(one.Args) == 0 || !s.ReadOnlyRootFilesystem {
		t.Errorf("%s: image %s, policy %q, arguments %q", name, one.Image, one.ImagePullPolicy, one.Args)
	}
	if s.Privileged {
		if !p.HostNetwork || len(one.VolumeMounts) != 1 || one.VolumeMounts[0].MountPath != "/dev/infiniband" {
			t.Errorf("%s is privileged and lacks the nodes or the network", name)
		}
		return
	}
	for resource, n := range one.Resources.Limits {
		if !c.resources[resource] || n != 1 {
			t.Errorf("%s asks for %d of %s; there are %v", name, n, resource, c.resources)
		}
	}
	if _, ok := c.networks[c.notes[name]["k8s.v1.cni.cncf.io/networks"]]; ok == p.HostNetwork || len(one.Resources.Limits) != 1 {
		t.Errorf("%s has resources %v and networks %v", name, one.Resources.Limits, c.notes[name])
	}
	if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) || s.SeccompProfile.Type != "RuntimeDefault" {
		t.Errorf("%s may do more than it needs: %+v", name, *s)
	}
	// IPC_LOCK is of use to root only.
	root := s.RunAsUser == 0
	if root == s.RunAsNonRoot || root != slices.Equal(s.Capabilities.Add, []string{"IPC_LOCK"}) || !root && len(s.Capabilities.Add) > 0 {
		t.Errorf("%s: user %d, not root: %v, capabilities %q", name, s.RunAsUser, s.RunAsNonRoot, s.Capabilities.Add)
	}
}

// checkTargets: the list of an exporter is where it is looked for, and so is the exporter.
func (c *cluster) checkTargets(t *testing.T, name string, p *pod, one *podContainer) {
	t.Helper()
	at := slices.Index(one.Args, "--targets")
	if at < 0 {
		return
	}
	dir, file := filepath.Split(one.Args[at+1])
	for _, v := range p.Volumes {
		if one.VolumeMounts[0].MountPath+"/" != dir || c.configs[v.Config.Name][file] == "" {
			t.Errorf("%s has %+v; there is no %s%s", name, one.VolumeMounts, dir, file)
		}
	}
	port := fmt.Sprintf(":%d", one.LivenessProbe.HTTPGet.Port)
	if !slices.Contains(one.Args, port) || len(one.Ports) != 1 || fmt.Sprintf(":%d", one.Ports[0].ContainerPort) != port {
		t.Errorf("%s: probe at %s, ports %v, arguments %q", name, port, one.Ports, one.Args)
	}
}

func readManifests(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{networks: map[string]network{}, resources: map[string]bool{}, configs: map[string]map[string]string{}, pods: map[string]pod{}, notes: map[string]map[string]string{}}
	names, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil || len(names) < 4 {
		t.Fatalf("%d manifests, %v", len(names), err)
	}
	page := read(t, "containers.md")
	for _, name := range names {
		if !strings.Contains(page, "]("+name+")") {
			t.Errorf("containers.md has no link to %s", name)
		}
		d := yaml.NewDecoder(strings.NewReader(read(t, name)))
		d.KnownFields(true)
		for {
			var o object
			if err = d.Decode(&o); err != nil {
				break
			}
			if err := c.add(&o); err != nil {
				t.Errorf("%s: %s %s: %v", name, o.Kind, o.Metadata.Name, err)
			}
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	return c
}

func (c *cluster) add(o *object) error {
	switch o.APIVersion + " " + o.Kind {
	case "v1 Pod":
		var p pod
		err := strictly(&o.Spec, &p)
		c.pods[o.Metadata.Name], c.notes[o.Metadata.Name] = p, o.Metadata.Annotations
		return err
	case "apps/v1 DaemonSet":
		var d daemonSet
		err := strictly(&o.Spec, &d)
		for k, v := range d.Selector.MatchLabels {
			if d.Template.Metadata.Labels[k] != v {
				return fmt.Errorf("it selects %s=%s and makes pods with %v", k, v, d.Template.Metadata.Labels)
			}
		}
		if len(d.Selector.MatchLabels) == 0 {
			return errors.New("it selects nothing")
		}
		c.pods[o.Metadata.Name] = d.Template.Spec
		return err
	case "k8s.cni.cncf.io/v1 NetworkAttachmentDefinition":
		var a attachment
		var n network
		err := errors.Join(strictly(&o.Spec, &a), strictJSON(a.Config, &n))
		if n.CNIVersion == "" || n.Name != o.Metadata.Name || (n.Type == "") == (n.Plugins == nil) {
			return fmt.Errorf("config %+v, %w", n, err)
		}
		c.networks[o.Metadata.Name] = n
		return err
	case "v1 ConfigMap":
		c.configs[o.Metadata.Name] = o.Data
		if o.Data["targets"] != "" {
			return nil
		}
		var d devicePlugins
		err := strictJSON(o.Data["config.json"], &d)
		for _, r := range d.ConfigList {
			c.resources["rdma/"+r.ResourceName] = true
		}
		for _, r := range d.ResourceList {
			if !r.Selectors.IsRDMA {
				return errors.New("it is not for RDMA")
			}
			c.resources[r.ResourcePrefix+"/"+r.ResourceName] = true
		}
		return err
	}
	return fmt.Errorf("%s is not known here", o.APIVersion)
}

// strictly decodes a part; fields that are not known are errors, as in the whole.
func strictly(part *yaml.Node, v any) error {
	text, err := yaml.Marshal(part)
	if err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	return d.Decode(v)
}

func strictJSON(text string, v any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one value")
	}
	return nil
}

var tableCode = regexp.MustCompile("`([a-z]+(?:-[a-z]+)+)`")

// TestFindings: the page on containers names findings that the doctor has.
func TestFindings(t *testing.T) {
	source, n := read(t, "../doctor/report.go"), 0
	for line := range strings.Lines(read(t, "containers.md")) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, m := range tableCode.FindAllStringSubmatch(line, -1) {
			if n++; !strings.Contains(source, ` Code = "`+m[1]+`"`) {
				t.Errorf("there is no finding %s: %s", m[1], line)
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d findings", n)
	}
}

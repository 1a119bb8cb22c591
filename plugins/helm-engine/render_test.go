package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"strings"
	"testing"
)

// archive packs files of a chart named demo.
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	packed := tar.NewWriter(zipped)
	for name, content := range files {
		header := &tar.Header{Name: "demo/" + name, Mode: 0o644, Size: int64(len(content))}
		if err := packed.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := packed.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const metadata = "apiVersion: v2\nname: demo\nversion: 1.0.0\n"

func ask(t *testing.T, q question, files map[string]string) (answer, error) {
	t.Helper()
	q.Chart = archive(t, files)
	if q.Name == "" {
		q.Name = "r"
	}
	in, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	return render(in)
}

func TestKindsNotesHooksAndCRDsAreSorted(t *testing.T) {
	a, err := ask(t, question{Name: "one", Namespace: "ns", Values: map[string]any{"size": 3}}, map[string]string{
		"Chart.yaml":          metadata,
		"values.yaml":         "size: 1\n",
		"crds/c.yaml":         "kind: CustomResourceDefinition\n",
		"templates/a.yaml":    "apiVersion: v1\nkind: Service\nmetadata: {name: {{ .Release.Name }}}\nspec: {size: {{ .Values.size }}}",
		"templates/b.yaml":    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Namespace }}}",
		"templates/h.yaml":    "apiVersion: batch/v1\nkind: Job\nmetadata: {name: h, annotations: {helm.sh/hook: post-install}}",
		"templates/NOTES.txt": "size {{ .Values.size }} of revision {{ .Release.Revision }}",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "---\n# Source: demo/templates/b.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: ns}\n" +
		"---\n# Source: demo/templates/a.yaml\napiVersion: v1\nkind: Service\nmetadata: {name: one}\nspec: {size: 3}\n"
	if a.Manifest != want {
		t.Errorf("manifest:\n%s", a.Manifest)
	}
	if a.Notes != "size 3 of revision 1" {
		t.Errorf("notes: %q", a.Notes)
	}
	if len(a.Hooks) != 1 || a.Hooks[0].Name != "h" || a.Hooks[0].Path != "demo/templates/h.yaml" {
		t.Errorf("hooks: %+v", a.Hooks)
	}
	if len(a.CRDs) != 1 || a.CRDs[0] != "kind: CustomResourceDefinition\n" {
		t.Errorf("crds: %q", a.CRDs)
	}
	if a.Chart.Metadata.Version != "1.0.0" || len(a.Chart.Templates) != 4 {
		t.Errorf("chart: %+v", a.Chart)
	}
}

func TestWhatTheClusterOffersReachesTemplates(t *testing.T) {
	files := map[string]string{
		"Chart.yaml": metadata,
		"templates/a.yaml": "kind: ConfigMap\napiVersion: v1\nversion: {{ .Capabilities.KubeVersion.Minor }}\n" +
			"has: {{ .Capabilities.APIVersions.Has \"example.org/v1/Thing\" }}\nupgrade: {{ .Release.IsUpgrade }}",
	}
	a, err := ask(t, question{KubeVersion: "v1.31.2", APIVersions: []string{"example.org/v1/Thing"}, Upgrade: true}, files)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(a.Manifest, "version: 31\nhas: true\nupgrade: true\n") {
		t.Errorf("manifest:\n%s", a.Manifest)
	}
}

func TestLookupsAreAnsweredByTheHost(t *testing.T) {
	files := map[string]string{
		"Chart.yaml": metadata,
		"templates/a.yaml": `{{ $s := lookup "v1" "Secret" .Release.Namespace "s" }}{{ $l := lookup "v1" "ConfigMap" "ns" "" }}
kind: ConfigMap
apiVersion: v1
kept: {{ (index $s.data "k") }}
count: {{ len $l.items }}
number: {{ (index $l.items 0).n }}`,
	}
	// The first rendering fails in the template, and still tells what it wants to know.
	a, err := ask(t, question{Namespace: "ns"}, files)
	if err != nil || len(a.Lookups) != 2 || a.Lookups[0].Name != "s" || a.Lookups[1].Kind != "ConfigMap" {
		t.Fatalf("%v %+v", err, a.Lookups)
	}
	known := a.Lookups
	known[0].Object = json.RawMessage(`{"apiVersion":"v1","kind":"Secret","data":{"k":"djI="}}`)
	known[1].Object = json.RawMessage(`{"apiVersion":"v1","kind":"ConfigMapList","items":[{"apiVersion":"v1","kind":"ConfigMap","n":10000000}]}`)
	a, err = ask(t, question{Namespace: "ns", Lookups: known}, files)
	if err != nil || !strings.HasSuffix(a.Manifest, "kept: djI=\ncount: 1\nnumber: 10000000\n") {
		t.Errorf("%v %s", err, a.Manifest)
	}
	known[0].Object = nil
	known[0].Error = "no such kind"
	if _, err = ask(t, question{Namespace: "ns", Lookups: known}, files); err == nil || !strings.Contains(err.Error(), "no such kind") {
		t.Errorf("%v", err)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name, want string
		files      map[string]string
	}{
		{"library chart", "library charts are not installable", map[string]string{
			"Chart.yaml": metadata + "type: library\n",
		}},
		{"missing dependency", "missing in charts/ directory: other", map[string]string{
			"Chart.yaml": metadata + "dependencies: [{name: other, version: 1.x, repository: oci://example.org}]\n",
		}},
		{"cluster too old", "incompatible with Kubernetes", map[string]string{
			"Chart.yaml": metadata + "kubeVersion: \">=99.0.0\"\n",
		}},
		{"values against the schema", "/size", map[string]string{
			"Chart.yaml":         metadata,
			"values.yaml":        "size: many\n",
			"values.schema.json": `{"properties": {"size": {"type": "integer"}}}`,
		}},
		{"required value", "name is needed", map[string]string{
			"Chart.yaml":       metadata,
			"templates/a.yaml": `{{ required "name is needed" .Values.name }}`,
		}},
		{"no YAML", "templates/a.yaml", map[string]string{
			"Chart.yaml":       metadata,
			"templates/a.yaml": "a: [",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ask(t, question{}, c.files)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v does not tell of %q", err, c.want)
			}
		})
	}
	if _, err := render([]byte("{")); err == nil {
		t.Error("half a request was understood")
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
)

type question struct {
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Revision  int            `json:"revision"`
	Upgrade   bool           `json:"upgrade"`
	Chart     []byte         `json:"chart"` // the .tgz; base64 in JSON
	Values    map[string]any `json:"values"`
	// The cluster's; empty means what Helm assumes without one.
	KubeVersion string   `json:"kubeVersion"`
	APIVersions []string `json:"apiVersions"`
	// What the host found out for earlier renderings.
	Lookups []lookup `json:"lookups"`
}

// Hooks and Chart marshal as they stand in Helm's release record.
type answer struct {
	Error    string          `json:"error,omitempty"`
	Manifest string          `json:"manifest,omitempty"`
	Hooks    []*release.Hook `json:"hooks,omitempty"`
	CRDs     []string        `json:"crds,omitempty"`
	Notes    string          `json:"notes,omitempty"`
	Chart    *chart.Chart    `json:"chart,omitempty"`
	// What templates asked of the cluster and the request did not tell: answered as absent. Where there is any, the
	// rest of the answer is not to be used.
	Lookups []lookup `json:"lookups,omitempty"`
}

// render does what `helm install` and `helm upgrade` do up to the first word to the cluster, in their order.
func render(in []byte) (answer, error) {
	var q question
	if err := json.Unmarshal(in, &q); err != nil {
		return answer{}, fmt.Errorf("the engine's request is not understood: %w", err)
	}
	ch, err := loader.LoadArchive(bytes.NewReader(q.Chart))
	if err != nil {
		return answer{}, err
	}
	if err := installable(ch); err != nil {
		return answer{}, err
	}
	if q.Values == nil {
		q.Values = map[string]any{}
	}
	if err := chartutil.ProcessDependencies(ch, q.Values); err != nil {
		return answer{}, fmt.Errorf("chart dependencies processing failed: %w", err)
	}
	caps, err := capabilities(q)
	if err != nil {
		return answer{}, err
	}
	if r := ch.Metadata.KubeVersion; r != "" && !chartutil.IsCompatibleRange(r, caps.KubeVersion.String()) {
		return answer{}, fmt.Errorf("chart requires kubeVersion: %s which is incompatible with Kubernetes %s", r, caps.KubeVersion.Version)
	}
	options := common.ReleaseOptions{
		Name: q.Name, Namespace: q.Namespace, Revision: max(q.Revision, 1),
		IsInstall: !q.Upgrade, IsUpgrade: q.Upgrade,
	}
	values, err := util.ToRenderValuesWithSchemaValidation(ch, q.Values, options, caps, false)
	if err != nil {
		return answer{}, err
	}
	asked := &lookups{known: q.Lookups}
	files, err := engine.RenderWithClientProvider(ch, values, asked)
	if len(asked.wanted) > 0 {
		return answer{Lookups: asked.wanted}, nil
	}
	if err != nil {
		return answer{}, err
	}
	return sorted(ch, files)
}

// installable refuses a library chart, and one whose declared dependencies are not in charts/: Helm's
// command line checks both before the engine sees the chart.
func installable(ch *chart.Chart) error {
	switch ch.Metadata.Type {
	case "", "application":
	default:
		return fmt.Errorf("%s charts are not installable", ch.Metadata.Type)
	}
	vendored := map[string]bool{}
	for _, d := range ch.Dependencies() {
		vendored[d.Name()] = true
	}
	var missing []string
	for _, d := range ch.Metadata.Dependencies {
		if !vendored[d.Name] {
			missing = append(missing, d.Name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("found in Chart.yaml, but missing in charts/ directory: %s", strings.Join(missing, ", "))
	}
	return nil
}

func capabilities(q question) (*common.Capabilities, error) {
	caps := common.DefaultCapabilities.Copy()
	if q.KubeVersion != "" {
		v, err := common.ParseKubeVersion(q.KubeVersion)
		if err != nil {
			return nil, fmt.Errorf("the cluster's version %q: %w", q.KubeVersion, err)
		}
		caps.KubeVersion = *v
	}
	if len(q.APIVersions) > 0 {
		caps.APIVersions = q.APIVersions
	}
	return caps, nil
}

// sorted takes the notes out (the root chart's alone are kept) and puts the rest in install order.
func sorted(ch *chart.Chart, files map[string]string) (answer, error) {
	const notes = "NOTES.txt"
	a := answer{Chart: ch, Notes: files[path.Join(ch.Name(), "templates", notes)]}
	for name := range files {
		if strings.HasSuffix(name, notes) {
			delete(files, name)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return answer{}, err
	}
	a.Hooks = hooks
	var all strings.Builder
	for _, m := range manifests {
		fmt.Fprintf(&all, "---\n# Source: %s\n%s\n", m.Name, m.Content)
	}
	a.Manifest = all.String()
	for _, crd := range ch.CRDObjects() {
		a.CRDs = append(a.CRDs, string(crd.File.Data))
	}
	return a, nil
}

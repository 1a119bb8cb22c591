package main

import (
	"context"
	"encoding/json"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
)

// lookup is one question of a template to the cluster. In the request it carries the host's answer; in the engine's
// answer it is what the host has to find out before the next rendering. Without a name it asks for a list.
type lookup struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	// Absent where the cluster has no such object.
	Object json.RawMessage `json:"object,omitempty"`
	// Why the cluster cannot be asked that, such as a kind that it does not serve.
	Error string `json:"error,omitempty"`
}

// lookups answers templates from what the host found out, and notes what it was not told.
type lookups struct {
	known  []lookup
	wanted []lookup
}

func (l *lookups) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return client{all: l, apiVersion: apiVersion, kind: kind}, true, nil
}

func (l *lookups) ask(q lookup) (map[string]any, error) {
	same := func(o lookup) bool {
		return o.APIVersion == q.APIVersion && o.Kind == q.Kind && o.Namespace == q.Namespace && o.Name == q.Name
	}
	for _, k := range l.known {
		if !same(k) {
			continue
		}
		if k.Error != "" {
			return nil, errors.New(k.Error)
		}
		if len(k.Object) == 0 || string(k.Object) == "null" {
			return nil, notFound(q)
		}
		var object map[string]any
		// Whole numbers stay whole, as in Helm's own client.
		if err := utiljson.Unmarshal(k.Object, &object); err != nil {
			return nil, err
		}
		return object, nil
	}
	for _, w := range l.wanted {
		if same(w) {
			return nil, notFound(q)
		}
	}
	l.wanted = append(l.wanted, q)
	return nil, notFound(q)
}

func notFound(q lookup) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: q.Kind}, q.Name)
}

type client struct {
	all                         *lookups
	apiVersion, kind, namespace string
}

func (c client) Namespace(namespace string) dynamic.ResourceInterface {
	c.namespace = namespace
	return c
}

func (c client) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	object, err := c.all.ask(lookup{APIVersion: c.apiVersion, Kind: c.kind, Namespace: c.namespace, Name: name})
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: object}, nil
}

func (c client) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	object, err := c.all.ask(lookup{APIVersion: c.apiVersion, Kind: c.kind, Namespace: c.namespace})
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetUnstructuredContent(object)
	return list, nil
}

// Package dynamic holds the shapes through which a template would look objects up.
package dynamic

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// ResourceInterface is what `lookup` calls.
type ResourceInterface interface {
	Get(ctx context.Context, name string, options metav1.GetOptions, subresources ...string) (*unstructured.Unstructured, error)
	List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error)
}

// NamespaceableResourceInterface is a ResourceInterface that can be narrowed.
type NamespaceableResourceInterface interface {
	Namespace(string) ResourceInterface
	ResourceInterface
}

// DynamicClient reaches nothing.
type DynamicClient struct{}

// NewForConfig always refuses.
func NewForConfig(*rest.Config) (*DynamicClient, error) {
	return nil, errors.New("the template engine has no cluster")
}

// Resource is never reached: there is no DynamicClient to call it on.
func (*DynamicClient) Resource(schema.GroupVersionResource) NamespaceableResourceInterface {
	return nil
}

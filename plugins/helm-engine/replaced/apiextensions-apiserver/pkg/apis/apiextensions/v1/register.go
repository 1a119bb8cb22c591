// Package v1 adds no kind to the scheme, as in client-go's replacement.
package v1

import "k8s.io/apimachinery/pkg/runtime"

// AddToScheme adds nothing.
func AddToScheme(*runtime.Scheme) error { return nil }

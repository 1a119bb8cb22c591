// Package scheme knows no kind: Helm makes its default list of API versions of it, and the host passes
// the cluster's own list instead.
package scheme

import "k8s.io/apimachinery/pkg/runtime"

// Scheme is empty.
var Scheme = runtime.NewScheme()

// Package kubernetes is imported by Helm for its version number alone.
package kubernetes

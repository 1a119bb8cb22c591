// Package rest names a connection. The engine never has one.
package rest

// Config is passed about by the template engine and never filled.
type Config struct{}

// ksml-runner stands in for KSML's runner in tests: it answers the probes, prints a numbered line each second and
// names the definitions that it was given. It never prints the contents of any file.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

func variable(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// definitions are the names of the files in the mounted folder; the ".." names are the kubelet's own.
func definitions(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if name := entry.Name(); name[0] != '.' {
			names = append(names, name)
		}
	}
	return names, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	folder := variable("KSML_DEFINITIONS", "/ksml")
	names, err := definitions(folder)
	if err != nil {
		fmt.Fprintf(os.Stderr, "ERROR cannot read the definitions: %v\n", err)
		os.Exit(1)
	}
	fmt.Printf("INFO started with %d definition(s) from %s: %v\n", len(names), folder, names)

	var ready atomic.Bool
	probe := func(ok func() bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if ok() {
				w.WriteHeader(http.StatusNoContent)
			} else {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}
	}
	always := func() bool { return true }
	mux := http.NewServeMux()
	mux.HandleFunc("/startup", probe(always))
	mux.HandleFunc("/live", probe(always))
	mux.HandleFunc("/ready", probe(ready.Load))
	server := &http.Server{Addr: ":" + variable("KSML_PORT", "8080"), Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintf(os.Stderr, "ERROR %v\n", err)
			os.Exit(1)
		}
	}()
	// No definitions is an application that never gets ready, which tests of failures want.
	ready.Store(len(names) > 0)

	// 0 runs for ever.
	last, _ := strconv.Atoi(variable("KSML_RUN_SECONDS", "0"))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			fmt.Println("INFO stopped")
			return
		case <-tick.C:
			fmt.Printf("INFO line %d\n", n)
			if last > 0 && n >= last {
				fmt.Println("INFO finished")
				return
			}
		}
	}
}

//! Kubernetes for plugins: one client per cluster behind grants.

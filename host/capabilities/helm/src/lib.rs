//! Helm for plugins: charts from OCI registries, releases in Helm's own record.

//! The HTTP side: routes, bodies, status codes, OpenAPI.

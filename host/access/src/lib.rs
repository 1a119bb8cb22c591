//! Who calls: tokens, roles, tenants.

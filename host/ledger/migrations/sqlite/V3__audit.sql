-- Who asked for which change. Names only. Rows are added and, when they are old, forgotten; none changes.
CREATE TABLE audit (
    n             INTEGER PRIMARY KEY,
    at            INTEGER NOT NULL,
    actor         TEXT NOT NULL,
    action        TEXT NOT NULL,
    -- The pair of a resource, `operation` or `host`.
    resource_type TEXT NOT NULL,
    resource_id   TEXT NOT NULL,
    instance      TEXT,
    tenant        TEXT,
    environment   TEXT,
    application   TEXT,
    operation     TEXT,
    request_id    TEXT
) STRICT;
CREATE INDEX audit_by_time ON audit (at);
CREATE INDEX audit_by_instance ON audit (instance, at);
CREATE INDEX audit_by_tenancy ON audit (instance, tenant, at);
CREATE INDEX audit_by_operation ON audit (operation) WHERE operation IS NOT NULL;

CREATE TRIGGER audit_never_changes BEFORE UPDATE ON audit BEGIN
    SELECT raise(ABORT, 'the audit is append-only');
END;

-- Who asked for which change. Names only. Rows are added and, when they are old, forgotten; none changes.
CREATE TABLE audit (
    n             BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at            BIGINT NOT NULL,
    actor         TEXT COLLATE "C" NOT NULL,
    action        TEXT COLLATE "C" NOT NULL,
    -- The pair of a resource, `operation` or `host`.
    resource_type TEXT COLLATE "C" NOT NULL,
    resource_id   TEXT COLLATE "C" NOT NULL,
    instance      TEXT COLLATE "C",
    tenant        TEXT COLLATE "C",
    environment   TEXT COLLATE "C",
    application   TEXT COLLATE "C",
    operation     TEXT COLLATE "C",
    request_id    TEXT COLLATE "C"
);
CREATE INDEX audit_by_time ON audit (at, n);
CREATE INDEX audit_by_instance ON audit (instance, at, n);
CREATE INDEX audit_by_tenancy ON audit (instance, tenant, at, n);
CREATE INDEX audit_by_operation ON audit (operation) WHERE operation IS NOT NULL;

CREATE FUNCTION audit_never_changes() RETURNS trigger LANGUAGE plpgsql
    AS 'BEGIN RAISE EXCEPTION ''the audit is append-only''; END';
CREATE TRIGGER audit_never_changes BEFORE UPDATE OR TRUNCATE ON audit EXECUTE FUNCTION audit_never_changes();

-- Jobs, the operations of applies among them. Times are milliseconds since 1970.
CREATE TABLE provisioning_jobs (
    n                INTEGER PRIMARY KEY,
    id               TEXT NOT NULL,
    kind             TEXT NOT NULL,
    mode             TEXT NOT NULL,
    subject_type     TEXT NOT NULL,
    subject_id       TEXT NOT NULL,
    pair             TEXT NOT NULL,
    instance         TEXT,
    tenant           TEXT,
    environment      TEXT NOT NULL,
    application      TEXT NOT NULL,
    resources        TEXT NOT NULL,
    plugin           TEXT NOT NULL,
    digest           TEXT NOT NULL,
    caller           TEXT NOT NULL,
    route            TEXT NOT NULL,
    request_id       TEXT NOT NULL,
    body             BLOB NOT NULL,
    status           TEXT NOT NULL,
    phase            TEXT NOT NULL,
    step             TEXT NOT NULL,
    attempt          INTEGER NOT NULL,
    cancel_requested INTEGER NOT NULL,
    due              INTEGER NOT NULL,
    lease_holder     TEXT,
    lease_until      INTEGER,
    token            INTEGER NOT NULL,
    revision         INTEGER NOT NULL,
    deadline         INTEGER NOT NULL,
    created          INTEGER NOT NULL,
    updated          INTEGER NOT NULL,
    last_event       INTEGER NOT NULL,
    -- instance/tenant: who takes turns with whom in claims.
    tenancy          TEXT NOT NULL,
    -- 0 parked until wake, 1 leased until wake, 2 ready to be claimed since wake, 3 nothing for a worker.
    queue            INTEGER NOT NULL,
    wake             INTEGER NOT NULL
) STRICT;

-- The digits of an id sort by age; its prefix does not.
CREATE UNIQUE INDEX jobs_by_age ON provisioning_jobs (substr(id, -32));
CREATE INDEX jobs_by_caller ON provisioning_jobs (caller, substr(id, -32));
CREATE INDEX jobs_by_digest ON provisioning_jobs (digest);
-- Every job is in exactly one of these four.
CREATE INDEX jobs_parked ON provisioning_jobs (wake, status) WHERE queue = 0;
CREATE INDEX jobs_leased ON provisioning_jobs (wake, status, tenancy, plugin, pair) WHERE queue = 1;
CREATE INDEX jobs_ready ON provisioning_jobs (tenancy, plugin, pair, digest, wake, status) WHERE queue = 2;
CREATE INDEX jobs_idle ON provisioning_jobs (status, updated) WHERE queue = 3;

-- Sealed texts, each in its own table, so that a heartbeat does not write them again.
CREATE TABLE sealed_requests (
    job    INTEGER PRIMARY KEY REFERENCES provisioning_jobs (n) ON DELETE CASCADE,
    sealed BLOB NOT NULL
) STRICT;
CREATE TABLE sealed_states (
    job    INTEGER PRIMARY KEY REFERENCES provisioning_jobs (n) ON DELETE CASCADE,
    sealed BLOB NOT NULL
) STRICT;
CREATE TABLE sealed_answers (
    job    INTEGER PRIMARY KEY REFERENCES provisioning_jobs (n) ON DELETE CASCADE,
    sealed BLOB NOT NULL
) STRICT;

CREATE TABLE job_events (
    job  INTEGER NOT NULL REFERENCES provisioning_jobs (n) ON DELETE CASCADE,
    seq  INTEGER NOT NULL,
    at   INTEGER NOT NULL,
    what TEXT NOT NULL,
    PRIMARY KEY (job, seq)
) STRICT, WITHOUT ROWID;

-- Which job a caller asked for. A job has its own request id and, where its caller asked again under another one
-- while it ran, further ones.
CREATE TABLE job_requests (
    caller     TEXT NOT NULL,
    route      TEXT NOT NULL,
    request_id TEXT NOT NULL,
    job        INTEGER NOT NULL,
    further    INTEGER NOT NULL,
    PRIMARY KEY (caller, route, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_further ON job_requests (job) WHERE further = 1;

-- Which unfinished job has a resource.
CREATE TABLE job_resources (
    scope    TEXT NOT NULL,
    resource TEXT NOT NULL,
    job      INTEGER NOT NULL,
    PRIMARY KEY (scope, resource)
) STRICT, WITHOUT ROWID;

CREATE TABLE plugins (
    digest TEXT PRIMARY KEY,
    kept   INTEGER NOT NULL,
    bytes  BLOB NOT NULL
) STRICT;

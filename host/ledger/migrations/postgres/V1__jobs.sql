-- Jobs, the operations of applies among them. Times are milliseconds since 1970.
--
-- Expand, then contract: while hosts are upgraded one by one, the version before works on this schema too. A new
-- migration may add tables, indexes, and columns that may be null or have a default. What nothing uses any more is
-- dropped one version later at the earliest. Statements name their columns, so that a new one does not disturb them.

-- The ledger's clock is the server's: one for all hosts. It stands here alone.
CREATE FUNCTION ledger_now() RETURNS BIGINT LANGUAGE sql VOLATILE
    AS 'SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint';

CREATE TABLE provisioning_jobs (
    n                BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id               TEXT COLLATE "C" NOT NULL,
    kind             TEXT NOT NULL,
    mode             TEXT NOT NULL,
    subject_type     TEXT NOT NULL,
    subject_id       TEXT NOT NULL,
    pair             TEXT COLLATE "C" NOT NULL,
    instance         TEXT,
    tenant           TEXT,
    environment      TEXT NOT NULL,
    application      TEXT NOT NULL,
    resources        TEXT[] NOT NULL,
    plugin           TEXT COLLATE "C" NOT NULL,
    digest           TEXT COLLATE "C" NOT NULL,
    caller           TEXT COLLATE "C" NOT NULL,
    route            TEXT COLLATE "C" NOT NULL,
    request_id       TEXT COLLATE "C" NOT NULL,
    body             BYTEA NOT NULL,
    status           TEXT COLLATE "C" NOT NULL,
    phase            TEXT NOT NULL,
    step             TEXT NOT NULL,
    attempt          BIGINT NOT NULL,
    cancel_requested BOOLEAN NOT NULL,
    due              BIGINT NOT NULL,
    lease_holder     TEXT,
    lease_until      BIGINT,
    token            BIGINT NOT NULL,
    revision         BIGINT NOT NULL,
    deadline         BIGINT NOT NULL,
    created          BIGINT NOT NULL,
    updated          BIGINT NOT NULL,
    last_event       BIGINT NOT NULL,
    -- Whose resources it works on: resources of two scopes never meet.
    scope            TEXT COLLATE "C" NOT NULL,
    -- instance/tenant: who takes turns with whom in claims.
    tenancy          TEXT COLLATE "C" NOT NULL,
    -- 0 parked until wake, 1 leased until wake, 2 ready to be claimed since wake, 3 nothing for a worker.
    queue            SMALLINT NOT NULL,
    wake             BIGINT NOT NULL,
    -- Sealed texts. Long ones lie outside of the row, so that a heartbeat does not write them again.
    request          BYTEA NOT NULL,
    state            BYTEA NOT NULL,
    answer           BYTEA
);
-- What is sealed does not compress.
ALTER TABLE provisioning_jobs ALTER COLUMN request SET STORAGE EXTERNAL;
ALTER TABLE provisioning_jobs ALTER COLUMN state SET STORAGE EXTERNAL;
ALTER TABLE provisioning_jobs ALTER COLUMN answer SET STORAGE EXTERNAL;
-- Jobs move through the queues; what they leave in the indexes is cleared away often.
ALTER TABLE provisioning_jobs SET (autovacuum_vacuum_scale_factor = 0.02);

-- The digits of an id sort by age; its prefix does not.
CREATE UNIQUE INDEX jobs_by_age ON provisioning_jobs (right(id, 32));
CREATE INDEX jobs_by_caller ON provisioning_jobs (caller, right(id, 32));
CREATE INDEX jobs_by_digest ON provisioning_jobs (digest);
-- Every job is in exactly one of these four.
CREATE INDEX jobs_parked ON provisioning_jobs (wake, status) WHERE queue = 0;
CREATE INDEX jobs_leased ON provisioning_jobs (wake, status, tenancy, plugin, pair) WHERE queue = 1;
CREATE INDEX jobs_ready ON provisioning_jobs (tenancy, plugin, pair, digest, wake, status) WHERE queue = 2;
CREATE INDEX jobs_idle ON provisioning_jobs (status, updated) WHERE queue = 3;

-- No foreign keys here: a job and what belongs to it are written and forgotten by the same statement, and a check
-- for each event would cost more than the event.
CREATE TABLE job_events (
    job  BIGINT NOT NULL,
    seq  BIGINT NOT NULL,
    at   BIGINT NOT NULL,
    -- JSON, but as a text: JSONB cannot hold every character of a code that a plugin gives.
    what TEXT NOT NULL,
    PRIMARY KEY (job, seq)
);

-- Which job a caller asked for. A job has its own request id and, where its caller asked again under another one
-- while it ran, further ones. Of two hosts that are asked at the same time, this key lets one win.
CREATE TABLE job_requests (
    caller     TEXT COLLATE "C" NOT NULL,
    route      TEXT COLLATE "C" NOT NULL,
    request_id TEXT COLLATE "C" NOT NULL,
    job        BIGINT NOT NULL,
    further    BOOLEAN NOT NULL,
    PRIMARY KEY (caller, route, request_id)
);
CREATE INDEX requests_further ON job_requests (job) WHERE further;

-- Which unfinished job has a resource.
CREATE TABLE job_resources (
    scope    TEXT COLLATE "C" NOT NULL,
    resource TEXT COLLATE "C" NOT NULL,
    job      BIGINT NOT NULL,
    PRIMARY KEY (scope, resource)
);

CREATE TABLE plugins (
    digest TEXT COLLATE "C" PRIMARY KEY,
    kept   BIGINT NOT NULL,
    bytes  BYTEA NOT NULL
);
ALTER TABLE plugins ALTER COLUMN bytes SET STORAGE EXTERNAL;

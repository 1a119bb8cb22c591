-- What each resource takes of its cluster: before the job that last changed it and after it. NULL: it is not there.
-- Which of the two counts follows from where that job stands, so that no write of a job has to touch this table.
CREATE TABLE resource_takes (
    scope             TEXT NOT NULL,
    resource          TEXT NOT NULL,
    -- Empty where there is none.
    instance          TEXT NOT NULL,
    tenant            TEXT NOT NULL,
    environment       TEXT NOT NULL,
    application       TEXT NOT NULL,
    pair              TEXT NOT NULL,
    -- NULL once the job is forgotten: what is after it holds.
    job               INTEGER,
    before_milli_cpus INTEGER,
    before_memory_mib INTEGER,
    after_milli_cpus  INTEGER,
    after_memory_mib  INTEGER,
    PRIMARY KEY (scope, resource)
) STRICT, WITHOUT ROWID;
CREATE INDEX takes_by_tenancy ON resource_takes (instance, tenant);
CREATE INDEX takes_by_job ON resource_takes (job) WHERE job IS NOT NULL;

-- What counts of each resource now.
CREATE VIEW resources_counted AS
    SELECT t.scope, t.resource, t.instance, t.tenant, t.environment, t.application, t.job,
        CASE WHEN j.n IS NULL OR j.status = 'completed' THEN t.after_milli_cpus
             WHEN j.status = 'cancelled' THEN t.before_milli_cpus
             ELSE max(coalesce(t.before_milli_cpus, t.after_milli_cpus),
                      coalesce(t.after_milli_cpus, t.before_milli_cpus)) END AS milli_cpus,
        CASE WHEN j.n IS NULL OR j.status = 'completed' THEN t.after_memory_mib
             WHEN j.status = 'cancelled' THEN t.before_memory_mib
             ELSE max(coalesce(t.before_memory_mib, t.after_memory_mib),
                      coalesce(t.after_memory_mib, t.before_memory_mib)) END AS memory_mib
    FROM resource_takes t LEFT JOIN provisioning_jobs j ON j.n = t.job;

-- What each resource takes of its cluster: before the job that last changed it and after it. NULL: it is not there.
-- Which of the two counts follows from where that job stands, so that no write of a job has to touch this table, and
-- the version before, which does not know it, disturbs nothing.
CREATE TABLE resource_takes (
    scope             TEXT COLLATE "C" NOT NULL,
    resource          TEXT COLLATE "C" NOT NULL,
    -- Empty where there is none.
    instance          TEXT COLLATE "C" NOT NULL,
    tenant            TEXT COLLATE "C" NOT NULL,
    environment       TEXT COLLATE "C" NOT NULL,
    application       TEXT COLLATE "C" NOT NULL,
    pair              TEXT COLLATE "C" NOT NULL,
    -- NULL once the job is forgotten: what is after it holds.
    job               BIGINT,
    before_milli_cpus BIGINT,
    before_memory_mib BIGINT,
    after_milli_cpus  BIGINT,
    after_memory_mib  BIGINT,
    PRIMARY KEY (scope, resource)
);
CREATE INDEX takes_by_tenancy ON resource_takes (instance, tenant);
CREATE INDEX takes_by_job ON resource_takes (job) WHERE job IS NOT NULL;

-- What counts of each resource now.
CREATE VIEW resources_counted AS
    SELECT t.scope, t.resource, t.instance, t.tenant, t.environment, t.application, t.job,
        CASE WHEN j.n IS NULL OR j.status = 'completed' THEN t.after_milli_cpus
             WHEN j.status = 'cancelled' THEN t.before_milli_cpus
             ELSE greatest(t.before_milli_cpus, t.after_milli_cpus) END AS milli_cpus,
        CASE WHEN j.n IS NULL OR j.status = 'completed' THEN t.after_memory_mib
             WHEN j.status = 'cancelled' THEN t.before_memory_mib
             ELSE greatest(t.before_memory_mib, t.after_memory_mib) END AS memory_mib
    FROM resource_takes t LEFT JOIN provisioning_jobs j ON j.n = t.job;

-- The first quota that a job would be over: its place among the limits, what is used, asked and allowed. The limits are
-- applications, milli-cpus and memory-mib of the instance, then of the tenant; NULL is none. `alone`: other jobs of the
-- instance wait until this one is written, and what was written meanwhile is counted: each statement in here looks anew.
CREATE FUNCTION over_quota(of_scope TEXT, of_instance TEXT, of_tenant TEXT, of_environment TEXT, of_application TEXT,
    resources TEXT[], milli_cpus BIGINT[], memory_mib BIGINT[], limits BIGINT[], alone BOOLEAN)
    RETURNS TABLE (nth INT, used BIGINT, asked BIGINT, most BIGINT) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF alone THEN
        PERFORM pg_advisory_xact_lock(1970566004, hashtext(of_instance));
    END IF;
    RETURN QUERY
    WITH counted AS MATERIALIZED (SELECT * FROM resources_counted c
            WHERE c.instance = of_instance AND c.milli_cpus IS NOT NULL),
        own AS MATERIALIZED (SELECT x.cpu, x.memory, coalesce(c.milli_cpus, 0) AS cpu_now,
                coalesce(c.memory_mib, 0) AS memory_now
            FROM unnest(over_quota.resources, over_quota.milli_cpus, over_quota.memory_mib) x (name, cpu, memory)
            LEFT JOIN counted c ON c.scope = of_scope AND c.resource = x.name WHERE x.cpu IS NOT NULL),
        more AS (SELECT CASE WHEN count(*) > 0 AND NOT EXISTS (SELECT FROM counted c WHERE c.tenant = of_tenant
                    AND c.environment = of_environment AND c.application = of_application)
                THEN 1::bigint ELSE 0::bigint END AS applications,
                coalesce(sum(greatest(own.cpu - own.cpu_now, 0)), 0)::bigint AS cpu,
                coalesce(sum(greatest(own.memory - own.memory_now, 0)), 0)::bigint AS memory FROM own),
        whole AS (SELECT count(DISTINCT (c.tenant, c.environment, c.application)) AS applications,
                coalesce(sum(c.milli_cpus), 0)::bigint AS cpu, coalesce(sum(c.memory_mib), 0)::bigint AS memory
            FROM counted c),
        tenants AS (SELECT count(DISTINCT (c.environment, c.application)) AS applications,
                coalesce(sum(c.milli_cpus), 0)::bigint AS cpu, coalesce(sum(c.memory_mib), 0)::bigint AS memory
            FROM counted c WHERE c.tenant = of_tenant)
    SELECT v.nth, v.used, v.asked, limits[v.nth] FROM more, whole, tenants, LATERAL (VALUES
            (1, whole.applications, more.applications), (2, whole.cpu, more.cpu), (3, whole.memory, more.memory),
            (4, tenants.applications, more.applications), (5, tenants.cpu, more.cpu),
            (6, tenants.memory, more.memory)) v (nth, used, asked)
        WHERE v.asked > 0 AND v.used + v.asked > limits[v.nth] ORDER BY v.nth LIMIT 1;
END
$$;

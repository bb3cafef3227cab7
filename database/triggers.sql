-- The triggers as they are now: a reader need not replay the migrations. Nothing runs this file but a test
-- (tests/integration/database/test_triggers_file.py): it replaces the triggers of a migrated database by these and finds
-- the same ones. A change is a new migration and a change here.

-- ===== schedules: every change of a definition gets a revision, a line in schedule_changes, and a notification =====

-- Our own programs set the actor per transaction; for any other session it is the login.
CREATE FUNCTION schedules_actor() RETURNS text LANGUAGE sql STABLE AS
$$ SELECT coalesce(nullif(current_setting('scheduler.actor', true), ''), 'sql:' || session_user) $$;

-- What schedule_changes keeps of a row: all but the bookkeeping.
CREATE FUNCTION schedules_definition(s schedules) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT to_jsonb(s) - '{next_run,last_run,last_status,invalid_reason,created_at,updated_at,failures_in_a_row,last_failed_for,backoff_until}'::text[] $$;

-- SECURITY DEFINER: whoever may write schedules need not have rights on the sequence and on schedule_changes.
CREATE FUNCTION schedules_stamp() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    BEGIN
        NEW.revision := nextval('schedule_revision_seq');
        NEW.updated_at := clock_timestamp();
        IF TG_OP = 'INSERT' THEN
            NEW.effective_from := NEW.updated_at;
            RETURN NEW;
        END IF;
        IF NEW.schedule_id <> OLD.schedule_id THEN
            RAISE EXCEPTION USING
                MESSAGE = 'the id of schedule ' || OLD.schedule_id || ' never changes: its history hangs on it',
                HINT = 'create a new schedule and delete this one',
                ERRCODE = 'restrict_violation';
        END IF;
        NEW.effective_from := CASE
            WHEN (NEW.frequency, NEW.time_config, NEW.timezone, NEW.start_at, NEW.end_at, NEW.enabled)
                 IS DISTINCT FROM
                 (OLD.frequency, OLD.time_config, OLD.timezone, OLD.start_at, OLD.end_at, OLD.enabled)
            THEN NEW.updated_at
            ELSE OLD.effective_from
        END;
        -- A verdict belongs to the revision that it was passed on.
        IF OLD.last_status = 'invalid' AND NEW.last_status = 'invalid' THEN
            NEW.last_status := NULL;
            NEW.invalid_reason := NULL;
        END IF;
        IF NEW.effective_from IS DISTINCT FROM OLD.effective_from THEN
            NEW.backoff_until := NULL;
            IF NEW.enabled THEN
                NEW.failures_in_a_row := 0;
                NEW.last_failed_for := NULL;
            END IF;
        END IF;
        RETURN NEW;
    END $$;

CREATE TRIGGER schedules_stamp_insert BEFORE INSERT ON schedules
FOR EACH ROW EXECUTE FUNCTION schedules_stamp();

CREATE TRIGGER schedules_stamp_update BEFORE UPDATE OF
    frequency, time_config, timezone, start_at, end_at, enabled, schedule_id, domain_config_id, domain, profile_id,
    name, job_type, job_config, priority, tags, spread_seconds, source, external_id, max_instances, "coalesce",
    misfire_grace_seconds, timeout_seconds, max_retries, retry_backoff_seconds, catchup, revision, effective_from,
    disabled_note, requires, queue, limit_keys, pause_after_failures, backoff_after_failures, ping_url
ON schedules FOR EACH ROW WHEN ((
    OLD.frequency, OLD.time_config, OLD.timezone, OLD.start_at, OLD.end_at, OLD.enabled, OLD.schedule_id,
    OLD.domain_config_id, OLD.domain, OLD.profile_id, OLD.name, OLD.job_type, OLD.job_config, OLD.priority,
    OLD.tags, OLD.spread_seconds, OLD.source, OLD.external_id, OLD.max_instances, OLD."coalesce",
    OLD.misfire_grace_seconds, OLD.timeout_seconds, OLD.max_retries, OLD.retry_backoff_seconds, OLD.catchup,
    OLD.revision, OLD.effective_from, OLD.disabled_note, OLD.requires, OLD.queue, OLD.limit_keys,
    OLD.pause_after_failures, OLD.backoff_after_failures, OLD.ping_url
) IS DISTINCT FROM (
    NEW.frequency, NEW.time_config, NEW.timezone, NEW.start_at, NEW.end_at, NEW.enabled, NEW.schedule_id,
    NEW.domain_config_id, NEW.domain, NEW.profile_id, NEW.name, NEW.job_type, NEW.job_config, NEW.priority,
    NEW.tags, NEW.spread_seconds, NEW.source, NEW.external_id, NEW.max_instances, NEW."coalesce",
    NEW.misfire_grace_seconds, NEW.timeout_seconds, NEW.max_retries, NEW.retry_backoff_seconds, NEW.catchup,
    NEW.revision, NEW.effective_from, NEW.disabled_note, NEW.requires, NEW.queue, NEW.limit_keys,
    NEW.pause_after_failures, NEW.backoff_after_failures, NEW.ping_url
)) EXECUTE FUNCTION schedules_stamp();

-- Inserts and deletes are logged per statement (bulk loads), updates per row (bookkeeping must not be collected).
CREATE FUNCTION schedules_log() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    BEGIN
        CASE TG_OP
            WHEN 'INSERT' THEN
                INSERT INTO schedule_changes (schedule_id, revision, operation, changed_by, new)
                SELECT n.schedule_id, n.revision, 'insert', schedules_actor(), schedules_definition(n::schedules)
                FROM new_rows AS n;
            WHEN 'DELETE' THEN
                INSERT INTO schedule_changes (schedule_id, revision, operation, changed_by, old)
                SELECT o.schedule_id, nextval('schedule_revision_seq'), 'delete', schedules_actor(),
                       schedules_definition(o::schedules)
                FROM old_rows AS o;
            WHEN 'UPDATE' THEN
                INSERT INTO schedule_changes (schedule_id, revision, operation, changed_by, old, new)
                VALUES (NEW.schedule_id, NEW.revision, 'update', schedules_actor(),
                        schedules_definition(OLD), schedules_definition(NEW));
            ELSE
                INSERT INTO schedule_changes (revision, operation, changed_by)
                VALUES (nextval('schedule_revision_seq'), 'truncate', schedules_actor());
        END CASE;
        IF FOUND THEN
            PERFORM pg_notify('schedules_changed', '');
        END IF;
        RETURN NULL;
    END $$;

CREATE TRIGGER schedules_log_insert AFTER INSERT ON schedules REFERENCING NEW TABLE AS new_rows
FOR EACH STATEMENT EXECUTE FUNCTION schedules_log();

CREATE TRIGGER schedules_log_delete AFTER DELETE ON schedules REFERENCING OLD TABLE AS old_rows
FOR EACH STATEMENT EXECUTE FUNCTION schedules_log();

CREATE TRIGGER schedules_log_update AFTER UPDATE OF
    frequency, time_config, timezone, start_at, end_at, enabled, schedule_id, domain_config_id, domain, profile_id,
    name, job_type, job_config, priority, tags, spread_seconds, source, external_id, max_instances, "coalesce",
    misfire_grace_seconds, timeout_seconds, max_retries, retry_backoff_seconds, catchup, revision, effective_from,
    disabled_note, requires, queue, limit_keys, pause_after_failures, backoff_after_failures, ping_url
ON schedules FOR EACH ROW WHEN (OLD.revision IS DISTINCT FROM NEW.revision) EXECUTE FUNCTION schedules_log();

CREATE TRIGGER schedules_log_truncate AFTER TRUNCATE ON schedules
FOR EACH STATEMENT EXECUTE FUNCTION schedules_log();

-- The reason why a schedule is off ends when it is switched on.
CREATE FUNCTION schedules_clear_note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.disabled_note := NULL;
        RETURN NEW;
    END $$;

CREATE TRIGGER schedules_clear_note BEFORE UPDATE OF enabled ON schedules
FOR EACH ROW WHEN (NEW.enabled AND NOT OLD.enabled) EXECUTE FUNCTION schedules_clear_note();

-- ===== limits: a change wakes the replicas, which look at what waits for a limit =====

CREATE FUNCTION limits_stamp() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.updated_at := clock_timestamp();
        RETURN NEW;
    END $$;

CREATE TRIGGER limits_stamp_update BEFORE UPDATE ON limits
FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION limits_stamp();

CREATE FUNCTION limits_tell() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify('executions_pending', '');
        RETURN NULL;
    END $$;

CREATE TRIGGER limits_tell AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON limits
FOR EACH STATEMENT EXECUTE FUNCTION limits_tell();

-- SECURITY DEFINER: whoever may write limits need not have rights on limit_changes.
CREATE FUNCTION limits_log() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    BEGIN
        CASE TG_OP
            WHEN 'INSERT' THEN
                INSERT INTO limit_changes (name, operation, changed_by, new)
                VALUES (NEW.name, 'insert', schedules_actor(), to_jsonb(NEW));
            WHEN 'UPDATE' THEN
                INSERT INTO limit_changes (name, operation, changed_by, old, new)
                VALUES (OLD.name, 'update', schedules_actor(), to_jsonb(OLD), to_jsonb(NEW));
            WHEN 'DELETE' THEN
                INSERT INTO limit_changes (name, operation, changed_by, old)
                VALUES (OLD.name, 'delete', schedules_actor(), to_jsonb(OLD));
            ELSE
                INSERT INTO limit_changes (operation, changed_by) VALUES ('truncate', schedules_actor());
        END CASE;
        RETURN NULL;
    END $$;

CREATE TRIGGER limits_log AFTER INSERT OR DELETE ON limits FOR EACH ROW EXECUTE FUNCTION limits_log();

CREATE TRIGGER limits_log_update AFTER UPDATE ON limits
FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION limits_log();

CREATE TRIGGER limits_log_truncate AFTER TRUNCATE ON limits
FOR EACH STATEMENT EXECUTE FUNCTION limits_log();

-- ===== job_executions: a terminal status never changes, and counted hours are counted again when they change late =====

CREATE FUNCTION job_executions_keep_end() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION USING
            MESSAGE = 'execution ' || OLD.execution_id || ' ended as ' || OLD.status
                      || ': a terminal status never changes',
            ERRCODE = 'restrict_violation';
    END $$;

CREATE TRIGGER job_executions_keep_end BEFORE UPDATE OF status ON job_executions FOR EACH ROW
WHEN (OLD.status IN ('success', 'failed', 'timed_out', 'cancelled', 'abandoned', 'skipped', 'missed')
      AND NEW.status IS DISTINCT FROM OLD.status)
EXECUTE FUNCTION job_executions_keep_end();

CREATE FUNCTION execution_hours_forget() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(7236411902);
        IF TG_OP = 'TRUNCATE' THEN
            DELETE FROM execution_hours;
        ELSIF TG_LEVEL = 'STATEMENT' THEN
            DELETE FROM execution_hours WHERE hour IN (SELECT date_trunc('hour', created_at, 'UTC') FROM gone);
        ELSE
            DELETE FROM execution_hours WHERE hour IN (
                date_trunc('hour', NEW.created_at, 'UTC'),
                CASE WHEN TG_OP = 'UPDATE' THEN date_trunc('hour', OLD.created_at, 'UTC') END);
        END IF;
        RETURN NULL;
    END $$;

-- For a replica's own writes the conditions are false, and that is all that they cost.
CREATE TRIGGER job_executions_inserted_late AFTER INSERT ON job_executions FOR EACH ROW
WHEN (NEW.created_at < clock_timestamp() - interval '1 hour') EXECUTE FUNCTION execution_hours_forget();

CREATE TRIGGER job_executions_changed_late AFTER UPDATE ON job_executions FOR EACH ROW
WHEN (OLD.status NOT IN ('pending', 'claimed', 'running') OR NEW.created_at <> OLD.created_at)
EXECUTE FUNCTION execution_hours_forget();

CREATE TRIGGER job_executions_deleted AFTER DELETE ON job_executions REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION execution_hours_forget();

CREATE TRIGGER job_executions_truncated AFTER TRUNCATE ON job_executions
FOR EACH STATEMENT EXECUTE FUNCTION execution_hours_forget();

-- ===== the pipeline's tables: created_at stays, updated_at follows =====

CREATE FUNCTION keep_times() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.created_at = OLD.created_at;
        NEW.updated_at = clock_timestamp();
        RETURN NEW;
    END $$;

CREATE TRIGGER keep_times BEFORE UPDATE ON places_staging FOR EACH ROW EXECUTE FUNCTION keep_times();
CREATE TRIGGER keep_times BEFORE UPDATE ON local_businesses FOR EACH ROW EXECUTE FUNCTION keep_times();
CREATE TRIGGER keep_times BEFORE UPDATE ON domains FOR EACH ROW EXECUTE FUNCTION keep_times();
CREATE TRIGGER keep_times BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION keep_times();
CREATE TRIGGER keep_times BEFORE UPDATE ON sitemap_files FOR EACH ROW EXECUTE FUNCTION keep_times();
CREATE TRIGGER keep_times BEFORE UPDATE ON pages FOR EACH ROW EXECUTE FUNCTION keep_times();
CREATE TRIGGER keep_times BEFORE UPDATE ON contacts FOR EACH ROW EXECUTE FUNCTION keep_times();
CREATE TRIGGER keep_times BEFORE UPDATE ON workflow_queues FOR EACH ROW EXECUTE FUNCTION keep_times();
CREATE TRIGGER keep_times BEFORE UPDATE ON dead_letters FOR EACH ROW EXECUTE FUNCTION keep_times();

-- ===== queues: a row that enters its queue, also by plain SQL, begins anew and closes its dead letter =====
-- Only the job loop moves a row back from processing; that is no new beginning.

CREATE FUNCTION places_staging_deep_scan_status_enters() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.attempts = 0;
        NEW.claimed_at = NULL;
        NEW.claim_token = NULL;
        IF NEW.not_before = OLD.not_before THEN
            NEW.not_before = clock_timestamp();
        END IF;
        UPDATE dead_letters SET requeued_at = clock_timestamp(), requeued_by = schedules_actor()
        WHERE queue = 'deep_scan' AND item_key = NEW.id::text AND requeued_at IS NULL;
        RETURN NEW;
    END $$;

CREATE TRIGGER places_staging_deep_scan_status_enters BEFORE UPDATE OF deep_scan_status ON places_staging FOR EACH ROW
WHEN (NEW.deep_scan_status = 'Queued' AND OLD.deep_scan_status IS DISTINCT FROM 'Queued'
      AND OLD.deep_scan_status IS DISTINCT FROM 'Processing')
EXECUTE FUNCTION places_staging_deep_scan_status_enters();

CREATE FUNCTION local_businesses_domain_extraction_status_enters() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.attempts = 0;
        NEW.claimed_at = NULL;
        NEW.claim_token = NULL;
        IF NEW.not_before = OLD.not_before THEN
            NEW.not_before = clock_timestamp();
        END IF;
        UPDATE dead_letters SET requeued_at = clock_timestamp(), requeued_by = schedules_actor()
        WHERE queue = 'domain_extraction' AND item_key = NEW.id::text AND requeued_at IS NULL;
        RETURN NEW;
    END $$;

CREATE TRIGGER local_businesses_domain_extraction_status_enters BEFORE UPDATE OF domain_extraction_status ON local_businesses FOR EACH ROW
WHEN (NEW.domain_extraction_status = 'Queued' AND OLD.domain_extraction_status IS DISTINCT FROM 'Queued'
      AND OLD.domain_extraction_status IS DISTINCT FROM 'Processing')
EXECUTE FUNCTION local_businesses_domain_extraction_status_enters();

CREATE FUNCTION domains_status_enters() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.attempts = 0;
        NEW.claimed_at = NULL;
        NEW.claim_token = NULL;
        IF NEW.not_before = OLD.not_before THEN
            NEW.not_before = clock_timestamp();
        END IF;
        UPDATE dead_letters SET requeued_at = clock_timestamp(), requeued_by = schedules_actor()
        WHERE queue = 'domain_metadata' AND item_key = NEW.id::text AND requeued_at IS NULL;
        RETURN NEW;
    END $$;

CREATE TRIGGER domains_status_enters BEFORE UPDATE OF status ON domains FOR EACH ROW
WHEN (NEW.status = 'pending' AND OLD.status IS DISTINCT FROM 'pending'
      AND OLD.status IS DISTINCT FROM 'processing')
EXECUTE FUNCTION domains_status_enters();

CREATE FUNCTION domains_sitemap_analysis_status_enters() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.sitemap_attempts = 0;
        NEW.sitemap_claimed_at = NULL;
        NEW.sitemap_claim_token = NULL;
        IF NEW.sitemap_not_before = OLD.sitemap_not_before THEN
            NEW.sitemap_not_before = clock_timestamp();
        END IF;
        UPDATE dead_letters SET requeued_at = clock_timestamp(), requeued_by = schedules_actor()
        WHERE queue = 'sitemap_submission' AND item_key = NEW.id::text AND requeued_at IS NULL;
        RETURN NEW;
    END $$;

CREATE TRIGGER domains_sitemap_analysis_status_enters BEFORE UPDATE OF sitemap_analysis_status ON domains FOR EACH ROW
WHEN (NEW.sitemap_analysis_status = 'queued' AND OLD.sitemap_analysis_status IS DISTINCT FROM 'queued'
      AND OLD.sitemap_analysis_status IS DISTINCT FROM 'processing')
EXECUTE FUNCTION domains_sitemap_analysis_status_enters();

CREATE FUNCTION jobs_status_enters() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.attempts = 0;
        NEW.claimed_at = NULL;
        NEW.claim_token = NULL;
        IF NEW.not_before = OLD.not_before THEN
            NEW.not_before = clock_timestamp();
        END IF;
        UPDATE dead_letters SET requeued_at = clock_timestamp(), requeued_by = schedules_actor()
        WHERE queue = 'sitemap_jobs' AND item_key = NEW.id::text AND requeued_at IS NULL;
        RETURN NEW;
    END $$;

CREATE TRIGGER jobs_status_enters BEFORE UPDATE OF status ON jobs FOR EACH ROW
WHEN (NEW.status = 'pending' AND OLD.status IS DISTINCT FROM 'pending'
      AND OLD.status IS DISTINCT FROM 'running')
EXECUTE FUNCTION jobs_status_enters();

CREATE FUNCTION sitemap_files_sitemap_import_status_enters() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.attempts = 0;
        NEW.claimed_at = NULL;
        NEW.claim_token = NULL;
        IF NEW.not_before = OLD.not_before THEN
            NEW.not_before = clock_timestamp();
        END IF;
        UPDATE dead_letters SET requeued_at = clock_timestamp(), requeued_by = schedules_actor()
        WHERE queue = 'sitemap_import' AND item_key = NEW.id::text AND requeued_at IS NULL;
        RETURN NEW;
    END $$;

CREATE TRIGGER sitemap_files_sitemap_import_status_enters BEFORE UPDATE OF sitemap_import_status ON sitemap_files FOR EACH ROW
WHEN (NEW.sitemap_import_status = 'Queued' AND OLD.sitemap_import_status IS DISTINCT FROM 'Queued'
      AND OLD.sitemap_import_status IS DISTINCT FROM 'Processing')
EXECUTE FUNCTION sitemap_files_sitemap_import_status_enters();

CREATE FUNCTION pages_page_processing_status_enters() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.attempts = 0;
        NEW.claimed_at = NULL;
        NEW.claim_token = NULL;
        IF NEW.not_before = OLD.not_before THEN
            NEW.not_before = clock_timestamp();
        END IF;
        UPDATE dead_letters SET requeued_at = clock_timestamp(), requeued_by = schedules_actor()
        WHERE queue = 'page_curation' AND item_key = NEW.id::text AND requeued_at IS NULL;
        RETURN NEW;
    END $$;

CREATE TRIGGER pages_page_processing_status_enters BEFORE UPDATE OF page_processing_status ON pages FOR EACH ROW
WHEN (NEW.page_processing_status = 'Queued' AND OLD.page_processing_status IS DISTINCT FROM 'Queued'
      AND OLD.page_processing_status IS DISTINCT FROM 'Processing')
EXECUTE FUNCTION pages_page_processing_status_enters();

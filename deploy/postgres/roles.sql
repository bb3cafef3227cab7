-- Least privilege: `scheduler_owner` owns the schema and runs the migrations, `scheduler_app` is what replicas, web and
-- the command line log in as. Run once as a superuser, in the scheduler's database, before run_migrations.py:
--
--   psql --set=ON_ERROR_STOP=1 --dbname=scheduler --file=deploy/postgres/roles.sql
--
-- Then give both a password (\password scheduler_owner) or another way to log in.

CREATE ROLE scheduler_owner LOGIN;
CREATE ROLE scheduler_app LOGIN;

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO scheduler_owner;
GRANT USAGE ON SCHEMA public TO scheduler_app;

-- What the owner creates from now on, migrations to come included. Migrations 0015 and 0025 take INSERT and UPDATE on
-- schedule_changes and limit_changes away again: both logs are written by triggers, which work with the owner's rights.
ALTER DEFAULT PRIVILEGES FOR ROLE scheduler_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO scheduler_app;
ALTER DEFAULT PRIVILEGES FOR ROLE scheduler_owner IN SCHEMA public
    GRANT USAGE, SELECT ON SEQUENCES TO scheduler_app;

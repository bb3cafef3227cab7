-- After roles.sql, when the container makes its database for the first time: the passwords from its environment.
\getenv owner POSTGRES_OWNER_PASSWORD
\getenv app POSTGRES_APP_PASSWORD
ALTER ROLE scheduler_owner PASSWORD :'owner';
ALTER ROLE scheduler_app PASSWORD :'app';

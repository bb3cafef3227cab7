"""The built-in handlers, one file each. The registry imports them by name, exactly like users' JOB_MODULES."""

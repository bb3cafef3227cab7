"""The spelling of a label: a word by which a replica offers an ability or serves a queue."""

LABEL = "[a-z0-9][a-z0-9_.-]{0,62}"

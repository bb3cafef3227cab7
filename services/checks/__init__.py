"""One rule per kind of input value: host names, JSON, names of secrets. Pure, used by every entry point."""

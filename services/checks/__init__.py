"""One rule per kind of input value: host names, JSON, the names of secrets. Pure; every door uses the same rule."""

"""One rule per kind of input value: host names, JSON, names of secrets, numbers of queues.

Pure; every door uses the same rule.
"""

"""Several replicas in one process, on the real Postgres with a virtual clock: played from a seed, judged from outside.

`python -m tests.proof.simulation --help`; docs/simulation.md says what it plays and how to read a history. Programs
call `playing.play`. Its import replaces the clocks of the process, so it has to come before the first import of the
product.
"""

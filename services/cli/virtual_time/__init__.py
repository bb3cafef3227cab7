"""A clock that tests can move: that of the Postgres of a test run, and of the replica beside it.

The schema `virtual` stands before pg_catalog in the search path of the database: `clock_timestamp()`, `now()` and the
like answer the real time plus what the clock is ahead. The replica reads the same number from a file. Time flows on in
between, at its usual pace. Never for a database that anybody needs.

clock.py    the schema, the file, and one jump of both
mover.py    from instant to instant: at each one, what is due has ended before the clock goes on
server.py   the program that the test kit talks to; replica.py: the replica that it starts
"""

"""Coordination with other processes: backoff, the circuit breaker for Redis, the renewal of named locks."""

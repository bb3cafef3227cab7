"""Backoff, the circuit breaker of the Redis door, the renewal of named locks, and pauses of the garbage collector."""

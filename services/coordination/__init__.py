"""How a process meets others: backoff, the circuit breaker of the Redis door, the renewal of named locks."""

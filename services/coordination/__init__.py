"""Parts of the Redis access besides its keys: the circuit breaker and the renewal of named locks."""

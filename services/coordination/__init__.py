"""What the door to Redis is made of besides its keys: the circuit breaker and the renewal of named locks."""

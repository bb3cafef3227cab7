"""Read-only answers about schedules and executions: audit, explain, overview, forecast, replicas."""

"""A process as such: what it reports (metrics, log lines, health), and when it collects garbage."""

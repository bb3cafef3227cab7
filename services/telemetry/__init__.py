"""What a process reports about itself: metrics, log lines, health."""

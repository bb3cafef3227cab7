"""What a process says about itself: metrics, log lines, health."""

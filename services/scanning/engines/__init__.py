"""The scan engines: plain HTTP, or a browser behind a guarded proxy."""

"""How pages are visited: plain HTTP, or a browser behind a guarded proxy."""

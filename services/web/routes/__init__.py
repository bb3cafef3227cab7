"""The route handlers, one file per noun. Plain functions: the services block, so each call runs in a thread."""

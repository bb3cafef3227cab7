"""The handlers, one file per noun. Plain functions: everything below them blocks, so each runs in a thread."""

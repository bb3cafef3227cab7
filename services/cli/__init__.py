"""The commands behind manage.py: one file per noun. They read arguments, call a service, and print."""

"""A status column as a work queue: claim -> load -> work -> save. Start reading at job_loop.py; a workflow file
defines a `Queue` (queue.py).
"""

"""A status column as a work queue: claim -> load -> work -> save. job_loop.py tells the story, queue.py is what a
workflow file makes.
"""

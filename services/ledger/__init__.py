"""The rows of `job_executions`, the source of truth for every fire: claims, requests, pages, statistics, retention.

The entry point for programs is services/job_history.py; the engine uses claims.py.
"""

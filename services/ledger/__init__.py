"""Rows of `job_executions`, the truth about every fire: values, claims, requests, pages, statistics, retention.

Programs come in by services/job_history.py; the engine uses claims.py.
"""

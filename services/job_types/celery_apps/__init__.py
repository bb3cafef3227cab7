"""Users' own Celery apps: their tasks are called (sending.py), their beat schedules are read (beat.py, timing.py).

Celery is imported by the functions that need it: a replica without it runs everything else.
"""

"""Schedule definitions: validation (spec), bulk writes (batch), pages (listing), previews and the log of changes.

The entry point for programs is services/schedule_repository.py.
"""

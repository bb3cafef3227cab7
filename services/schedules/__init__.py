"""What a schedule says: its rules (spec), bulk writes (batch), pages (listing), previews and the log of changes.

Programs come in by services/schedule_repository.py.
"""

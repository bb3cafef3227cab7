"""Compares the fires that should have been with the rows that are, and closes every hole. Start at scanner.py."""

"""The gap scan: compares expected fires with recorded rows and closes every gap. Start at scanner.py."""

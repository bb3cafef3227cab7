"""The events that rules can report, one file per family: each turns rows into occurrences and their ends."""

"""What can be told, one file per family: each turns rows into occurrences, and into ends of them."""

"""`python -m enhanced_scheduler` is the command `enhanced-scheduler`."""

from enhanced_scheduler.application import main

main()

"""The parts of the browser engine (`services/scanning/engines/browser_engine.py`).

session.py    the running browser with its visitors
visitor.py    one visitor: with or without consent
traffic.py    the requests of one page
process.py    the Chromium process: find, profile, kill
sightings.py  browser state -> cookies of the scan
scripts.py    scripts that run inside a page
"""

"""The parts of the browser engine (`services/scanning/engines/browser_engine.py`).

session.py   the running browser with its visitors            process.py     Chromium on this machine: found, ended
visitor.py   one person: never agrees, or always does         sightings.py   what was seen -> cookies of the scan
traffic.py   the requests of one page                         scripts.py     what is asked inside a page
"""

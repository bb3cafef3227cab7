"""Cookie scans: crawl a site, record every cookie, compare with the scan before.

Start reading at findings.py (what a scan finds, as values); scan.py tells the story.
"""

"""Cookie scans: crawl a site, record every cookie, compare with the previous scan.

Start reading at scan.py, the story of a scan; findings.py has its values.
"""

"""Parsers of foreign pages and sitemaps: bytes and HTML -> values, within limits. No database; no network except one
function of site_metadata.py.
"""

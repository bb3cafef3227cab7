"""Parsers for web sites, used by cookie scans and workflows: robots.txt, sitemaps, HTML, URLs. Bytes in, values out."""

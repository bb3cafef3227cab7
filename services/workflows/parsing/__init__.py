"""What pages and sitemaps of strangers say: bytes and HTML -> values, within limits. No database, and but for one
function of site_metadata.py no network."""

"""What other people's web sites say about themselves, for cookie scans and workflows alike. Bytes in, values out."""

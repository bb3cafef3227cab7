"""What the demo of `make run` calls, scans and sends through the pipeline: a site, a shop, a small town."""

"""The demo of `make run`: a site, a shop and a small town that its jobs call, scan and send through the pipeline."""

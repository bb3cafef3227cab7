"""The crawl of a site: its start, the choice of pages, politeness."""

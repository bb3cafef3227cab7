"""Cookies: what a browser would keep, what each one is for, and what changed since the scan before."""

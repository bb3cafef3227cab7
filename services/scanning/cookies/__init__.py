"""Cookies: which a browser would keep, their purpose, and the changes since the previous scan."""

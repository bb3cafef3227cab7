"""The walk through a site: where it starts, which pages it sees, how politely it asks."""

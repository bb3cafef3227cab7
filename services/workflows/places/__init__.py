"""Where the details of a place come from: one interface (provider.py), one file for each API."""

from services.workflows.places.open import open_provider
from services.workflows.places.provider import Business, PlacesProvider

__all__ = ["Business", "PlacesProvider", "open_provider"]

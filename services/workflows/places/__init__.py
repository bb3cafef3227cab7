"""Places and their details: one interface (provider.py), one file for each API; usage.py counts the requests."""

from services.workflows.places.open import open_provider
from services.workflows.places.provider import Business, FoundPlace, PlacesProvider

__all__ = ["Business", "FoundPlace", "PlacesProvider", "open_provider"]

"""Where places and their details come from: one interface (provider.py), one file for each API, usage.py counts."""

from services.workflows.places.open import open_provider
from services.workflows.places.provider import Business, FoundPlace, PlacesProvider

__all__ = ["Business", "FoundPlace", "PlacesProvider", "open_provider"]

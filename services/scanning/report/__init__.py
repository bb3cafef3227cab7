"""A scan as HTML for a privacy officer, CSV for spreadsheets and JSON for programs."""

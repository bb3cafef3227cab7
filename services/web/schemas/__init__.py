"""Request and response schemas, one file per noun.

The services validate the input, so that API, dashboard and command line report the same errors. These models only
parse and document it.
"""

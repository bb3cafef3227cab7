"""The dashboard at `/`: NiceGUI pages on the same app as the API. Start reading at frame.py and overview_page.py.

One file per page. The server builds a page for one visitor through the same services as the API and the command line,
and refreshes it every few seconds. Pages load nothing from other servers.
"""

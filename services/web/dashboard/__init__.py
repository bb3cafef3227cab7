"""The dashboard at `/`: NiceGUI pages on the same app as the API. Start reading at frame.py and overview_page.py.

One file per page. A page is built by the server for one visitor, reads through the same services as the API and the
command line, and asks again every few seconds; nothing is loaded from elsewhere.
"""

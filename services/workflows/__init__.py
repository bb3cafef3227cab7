"""The workflows of the scraping pipeline, one file each; importing this package registers their queues.

The loop that all of them share is in services/queues/. Whoever needs every queue imports `queues` from here.
"""

from services.queues.queue import queues as queues

# In the order of the pipeline, in which they are shown.
# isort: off
from services.workflows import deep_scan as deep_scan
from services.workflows import domain_extraction as domain_extraction
from services.workflows import domain_metadata as domain_metadata
from services.workflows import sitemap_submission as sitemap_submission
from services.workflows import sitemap_jobs as sitemap_jobs
from services.workflows import sitemap_import as sitemap_import
from services.workflows import page_curation as page_curation

"""The workflows of the scraping pipeline, one file each; importing this package registers their queues.

Their common loop is in services/queues/. Code that needs every queue imports `queues` from here.
"""

from services.queues.queue import queues as queues

# In the order of the pipeline, which is also the display order.
# isort: off
from services.workflows import deep_scan as deep_scan
from services.workflows import domain_extraction as domain_extraction
from services.workflows import domain_metadata as domain_metadata
from services.workflows import sitemap_submission as sitemap_submission
from services.workflows import sitemap_jobs as sitemap_jobs
from services.workflows import sitemap_import as sitemap_import
from services.workflows import page_curation as page_curation

"""The status-queue workflows: one loop for all (job_loop.py), one file for each (domain_extraction.py, …).

Importing this package registers every queue, and with it its job.
"""

# In the order of the pipeline, in which they are shown.
# isort: off
from services.workflows import deep_scan as deep_scan
from services.workflows import domain_extraction as domain_extraction
from services.workflows import domain_metadata as domain_metadata
from services.workflows import sitemap_submission as sitemap_submission
from services.workflows import sitemap_jobs as sitemap_jobs
from services.workflows import sitemap_import as sitemap_import
from services.workflows import page_curation as page_curation

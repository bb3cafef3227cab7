"""The values of the workflows' status columns, defined in one place. The stored strings are a contract."""

from enum import StrEnum


class PlaceStatus(StrEnum):
    """A curator's decision about a place, a business, a domain, a sitemap file or a page."""

    NEW = "New"
    SELECTED = "Selected"
    MAYBE = "Maybe"
    NOT_A_FIT = "Not a Fit"
    ARCHIVED = "Archived"


TURNED_DOWN = (PlaceStatus.NOT_A_FIT, PlaceStatus.ARCHIVED)  # no workflow queues such a row automatically


class DeepScanStatus(StrEnum):
    QUEUED = "Queued"
    PROCESSING = "Processing"
    COMPLETED = "Completed"
    ERROR = "Error"


class DomainExtractionStatus(StrEnum):
    QUEUED = "Queued"
    PROCESSING = "Processing"
    COMPLETED = "Completed"
    ERROR = "Error"


class DomainStatus(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    ERROR = "error"


class SitemapAnalysisStatus(StrEnum):
    PENDING = "pending"
    QUEUED = "queued"
    PROCESSING = "processing"
    SUBMITTED = "submitted"
    FAILED = "failed"


class JobStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


class SitemapType(StrEnum):
    INDEX = "index"
    STANDARD = "standard"
    IMAGE = "image"
    VIDEO = "video"
    NEWS = "news"


class DiscoveryMethod(StrEnum):
    ROBOTS_TXT = "robots_txt"
    COMMON_PATH = "common_path"
    SITEMAP_INDEX = "sitemap_index"
    HTML_LINK = "html_link"
    MANUAL = "manual"


class SitemapFileStatus(StrEnum):
    PENDING = "Pending"
    PROCESSING = "Processing"
    COMPLETED = "Completed"
    ERROR = "Error"


class SitemapImportStatus(StrEnum):
    QUEUED = "Queued"
    PROCESSING = "Processing"
    COMPLETE = "Complete"
    ERROR = "Error"


class PageProcessingStatus(StrEnum):
    QUEUED = "Queued"
    PROCESSING = "Processing"
    COMPLETE = "Complete"
    ERROR = "Error"
    FILTERED = "Filtered"


class ContactScrapeStatus(StrEnum):
    NEW = "New"
    CONTACT_FOUND = "ContactFound"
    NO_CONTACT_FOUND = "NoContactFound"
    ERROR = "Error"
    NOT_A_FIT = "NotAFit"


class EmailType(StrEnum):
    SERVICE = "SERVICE"
    CORPORATE = "CORPORATE"
    FREE = "FREE"
    UNKNOWN = "UNKNOWN"


class ContactCurationStatus(StrEnum):
    NEW = "New"
    QUEUED = "Queued"
    PROCESSING = "Processing"
    COMPLETE = "Complete"
    ERROR = "Error"


class CircuitStatus(StrEnum):
    """The circuit breaker of a queue: closed lets runs work, open skips them, half_open probes with one item."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    OPEN = "open"

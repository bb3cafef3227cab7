"""Schemas of the pipeline's rows: places, businesses, domains, sitemap files, pages; and of adding places."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from services.workflows.place_search import MAX_QUERY, MOST_FOUND
from services.workflows.place_staging import MOST_PLACES, NewPlace

Word = Annotated[str, Field(examples=["New"])]
State = Annotated[str | None, Field(description="null if never queued", examples=["Queued"])]
Error = Annotated[str | None, Field(examples=[None])]


class NewPlaces(BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"places": [{"place_id": "ChIJN1t_tDeuEmsR"}]}]}
    )

    places: list[NewPlace] = Field(min_length=1, max_length=MOST_PLACES)


class StagedOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: int | None = Field(description="null in a dry run for a new place", examples=[17])
    place_id: str = Field(examples=["ChIJN1t_tDeuEmsR"])
    name: str | None = Field(examples=["Elmwood Bakery"])
    formatted_address: str | None = Field(examples=["123 Elmwood Ave, Buffalo, NY 14201, USA"])
    created: bool = Field(description="False if it was already known; it stays unchanged")


class StagedPlaces(BaseModel):
    created_count: int = Field(examples=[1])
    known_count: int = Field(examples=[0])
    items: list[StagedOut]


class SearchPlaces(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"query": "dentists in Berlin"}]})

    query: str = Field(min_length=2, max_length=MAX_QUERY)
    limit: int = Field(MOST_FOUND, ge=1, le=MOST_FOUND)
    dry_run: bool = Field(False, description="Search the directory without staging the results")


class SearchedPlaces(StagedPlaces):
    query: str = Field(examples=["dentists in Berlin"])
    requests: int = Field(description="Requests charged to the quota", examples=[1])
    incomplete: str | None = Field(description="Why there may be more results; null if complete", examples=[None])


class Row(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    created_at: datetime
    updated_at: datetime


class PlaceOut(Row):
    id: int = Field(examples=[17])
    place_id: str = Field(examples=["ChIJN1t_tDeuEmsR"])
    name: str | None = Field(examples=["Elmwood Bakery"])
    formatted_address: str | None = Field(examples=["123 Elmwood Ave, Buffalo, NY 14201, USA"])
    latitude: float | None = Field(examples=[42.9])
    longitude: float | None = Field(examples=[-78.9])
    rating: float | None = Field(examples=[4.6])
    user_ratings_total: int | None = Field(examples=[128])
    tenant_id: UUID | None = Field(examples=[None])
    status: Word
    deep_scan_status: State
    deep_scan_error: Error


class BusinessOut(Row):
    id: UUID
    place_id: str = Field(examples=["ChIJN1t_tDeuEmsR"])
    business_name: str | None = Field(examples=["Elmwood Bakery"])
    full_address: str | None = Field(examples=["123 Elmwood Ave, Buffalo, NY 14201, USA"])
    city: str | None = Field(examples=["Buffalo"])
    country: str | None = Field(examples=["US"])
    phone: str | None = Field(examples=["+1 716-555-0100"])
    website_url: str | None = Field(examples=["https://bakery.example/"])
    main_category: str | None = Field(examples=["bakery"])
    rating: float | None = Field(examples=[4.6])
    reviews_count: int | None = Field(examples=[128])
    status: Word
    domain_extraction_status: State
    domain_extraction_error: Error


class DomainOut(Row):
    id: UUID
    domain: str
    local_business_id: UUID | None = Field(examples=[None])
    title: str | None = Field(examples=["Elmwood Bakery"])
    language: str | None = Field(examples=["en"])
    is_wordpress: bool | None = Field(examples=[True])
    tech_stack: list[str] = Field(examples=[["WordPress"]])
    email_addresses: list[str] = Field(examples=[["info@example.com"]])
    phone_numbers: list[str] = Field(examples=[["+49 30 123456"]])
    total_sitemaps: int = Field(examples=[2])
    last_scan: datetime | None = Field(examples=["2027-01-31T01:30:41.840Z"])
    status: str = Field(description="Status of its metadata", examples=["completed"])
    last_error: Error
    sitemap_curation_status: Word
    sitemap_analysis_status: str | None = Field(examples=["submitted"])
    sitemap_analysis_error: Error
    created_by: str | None = Field(description="The token or workflow that created it")


class SitemapFileOut(Row):
    id: UUID
    domain_id: UUID
    domain: str
    url: str = Field(examples=["https://example.com/sitemap.xml"])
    sitemap_type: str = Field(examples=["standard"])
    discovery_method: str | None = Field(examples=["robots_txt"])
    status: str = Field(description="Status of the file itself", examples=["Completed"])
    url_count: int | None = Field(examples=[120])
    page_count: int | None = Field(examples=[118])
    size_bytes: int | None = Field(examples=[20480])
    last_modified: datetime | None = Field(examples=[None])
    sitemap_import_curation_status: Word
    sitemap_import_status: State
    sitemap_import_error: Error


class SitePageOut(Row):
    id: UUID
    domain_id: UUID
    domain: str
    url: str = Field(examples=["https://example.com/contact"])
    sitemap_file_id: UUID | None = Field(examples=[None])
    page_type: str | None = Field(examples=["contact"])
    path_depth: int | None = Field(examples=[1])
    priority_level: int | None = Field(examples=[1])
    last_modified: datetime | None = Field(examples=[None])
    page_curation_status: Word
    page_processing_status: State
    page_processing_error: Error
    contact_scrape_status: Word


class PlaceList(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    items: list[PlaceOut]
    next_cursor: str | None


class BusinessList(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    items: list[BusinessOut]
    next_cursor: str | None


class DomainList(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    items: list[DomainOut]
    next_cursor: str | None


class SitemapFileList(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    items: list[SitemapFileOut]
    next_cursor: str | None


class PageList(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    items: list[SitePageOut]
    next_cursor: str | None

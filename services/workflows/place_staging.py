"""WF1, last step: new places enter `places_staging` as `New`, each once.

`place_id` is unique in the table; a known place stays unchanged, including its curation status.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, field_validator
from sqlalchemy import Connection, select
from sqlalchemy.dialects.postgresql import insert

from database.connection import DatabaseConnection
from database.workflow_models import Place
from database.writing import ROWS_PER_COMMIT, write_as
from enhanced_scheduler.texts import storable

MOST_PLACES = 1000  # places of one request
MAX_ID, MAX_TEXT = 512, 1024
Text = Annotated[str, Field(max_length=MAX_TEXT)]


class NewPlace(BaseModel):
    """A place as a directory, a file or a program provides it."""

    model_config = ConfigDict(
        extra="forbid",
        str_strip_whitespace=True,
        json_schema_extra={"examples": [{"place_id": "ChIJN1t_tDeuEmsR", "name": "Elmwood Bakery"}]},
    )

    place_id: str = Field(
        min_length=1, max_length=MAX_ID, description="The directory's own id; known ones are not added"
    )
    name: Text | None = None
    formatted_address: Text | None = None
    latitude: float | None = Field(None, ge=-90, le=90, allow_inf_nan=False)
    longitude: float | None = Field(None, ge=-180, le=180, allow_inf_nan=False)
    rating: float | None = Field(None, ge=0, le=5, allow_inf_nan=False)
    user_ratings_total: int | None = Field(None, ge=0, le=2**31 - 1)
    tenant_id: UUID | None = Field(None, description="DEFAULT_TENANT_ID when absent")

    @field_validator("place_id")
    @classmethod
    def _one_word(cls, place_id: str) -> str:
        if not is_place_id(place_id):
            raise ValueError("must be one word of printable characters")
        return place_id

    @field_validator("name", "formatted_address")
    @classmethod
    def _storable(cls, text: str | None) -> str | None:
        if text and storable(text) != text:
            raise ValueError("contains bytes that are not text")
        return text or None


@dataclass(frozen=True, slots=True)
class StagedPlace:
    id: int | None  # None: it would be new
    place_id: str
    name: str | None
    formatted_address: str | None
    created: bool  # False: it was already known, and stays unchanged


class PlaceStaging:
    def __init__(self, db: DatabaseConnection, actor: str, tenant_id: UUID) -> None:
        self._db, self._actor, self._tenant_id = db, actor, tenant_id

    def add(self, places: Iterable[NewPlace], *, dry_run: bool = False) -> Iterator[list[StagedPlace]]:
        """Committed in portions, in the given order; each portion is yielded once it is written."""
        waiting = iter(places)
        while portion := list(islice(waiting, ROWS_PER_COMMIT)):
            yield self.preview(portion) if dry_run else self.stage(portion)

    def stage(self, places: Sequence[NewPlace]) -> list[StagedPlace]:
        wanted = {place.place_id: place for place in reversed(places)}  # the first of several

        def stage(connection: Connection) -> list[StagedPlace]:
            ordered = (wanted[place_id] for place_id in sorted(wanted))
            rows = [{**place.model_dump(), "tenant_id": place.tenant_id or self._tenant_id} for place in ordered]
            new = insert(Place).values(rows).on_conflict_do_nothing(index_elements=["place_id"])
            created = set(connection.scalars(new.returning(Place.place_id)))
            return _results(connection, places, created)

        return write_as(self._db, self._actor, stage) if places else []

    def preview(self, places: Sequence[NewPlace]) -> list[StagedPlace]:
        """What `stage` would do."""
        with self._db.transaction() as connection:
            names = {place.place_id for place in places}
            known = set(connection.scalars(select(Place.place_id).where(Place.place_id.in_(names))))
            return _results(connection, places, names - known)


def is_place_id(text: str) -> bool:
    return text.isprintable() and " " not in text and 0 < len(text) <= MAX_ID


def _results(connection: Connection, places: Sequence[NewPlace], created: set[str]) -> list[StagedPlace]:
    """One result per given place; of duplicates, only the first is new."""
    query = select(Place.place_id, Place.id, Place.name, Place.formatted_address)
    rows = {
        row.place_id: row for row in connection.execute(query.where(Place.place_id.in_([p.place_id for p in places])))
    }
    new = set(created)
    staged = []
    for place in places:
        row, is_new = rows.get(place.place_id), place.place_id in new
        new.discard(place.place_id)
        staged.append(
            StagedPlace(
                id=row.id if row else None,
                place_id=place.place_id,
                name=row.name if row else place.name,
                formatted_address=row.formatted_address if row else place.formatted_address,
                created=is_new,
            )
        )
    return staged

"""Buckets: each schedule belongs to one of 1,024, by a hash of its id that Postgres computes and indexes.

Python never computes a bucket, so there is no second hash to keep equal. A set of buckets is an integer with one bit
each; a heartbeat carries it as bytes, lowest bit first, which is how `get_bit` counts.
"""

from collections.abc import Iterable, Iterator

BUCKETS = 1024
ALL = (1 << BUCKETS) - 1
NONE = 0
UNKNOWN = -1  # of a fire that no loaded schedule stands behind


def bucket_of(schedule_id: str) -> str:
    """The SQL expression for the bucket of an id; written exactly as in the index `schedules_bucket_idx`."""
    return f"(uuid_hash_extended({schedule_id}, 0) & {BUCKETS - 1})"


def set_of(buckets: Iterable[int]) -> int:
    found = 0
    for bucket in buckets:
        found |= 1 << bucket
    return found


def buckets_in(some: int) -> Iterator[int]:
    """Each bucket of the set, in order."""
    while some:
        lowest = some & -some
        yield lowest.bit_length() - 1
        some ^= lowest


def to_bytes(some: int) -> bytes:
    return some.to_bytes(BUCKETS // 8, "little")


def from_bytes(mask: bytes) -> int:
    return int.from_bytes(mask, "little") & ALL

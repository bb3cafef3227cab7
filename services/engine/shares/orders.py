"""Two rendezvous orders per bucket, on which all replicas agree without messages. Pure.

*Duty*: which replicas must hold a bucket. *Trying*: which of those that hold it tries a fire first. blake2b, because a
multiplicative hash of names that differ in one character leaves a replica of twelve without any bucket.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter

from services.schedules.buckets import BUCKETS

Place = tuple[str, str | None]  # a replica's name and its host
NAMES_REMEMBERED = 1024
NEXT_FEW = 3
TABLES_REMEMBERED = 32  # replicas come and go, and come again


@lru_cache(maxsize=NAMES_REMEMBERED)
def weights(instance_id: str) -> tuple[bytes, ...]:
    """One per bucket; the name breaks a tie, which eight bytes make a matter of theory."""
    name = instance_id.encode()
    return tuple(blake2b(b"%d/%s" % (bucket, name), digest_size=8).digest() for bucket in range(BUCKETS))


def trying(bucket: int, names: Iterable[str]) -> list[str]:
    """The highest weight first."""
    return sorted(names, key=lambda name: (weights(name)[bucket], name), reverse=True)


@lru_cache(maxsize=TABLES_REMEMBERED)
def duties(places: tuple[Place, ...], copies: int) -> tuple[tuple[str, ...], ...]:
    """The duty of each bucket."""
    return tuple(duty(bucket, places, copies) for bucket in range(BUCKETS))


def duty(bucket: int, places: Sequence[Place], copies: int) -> tuple[str, ...]:
    """The first in the order; then one of the next on a host that has no copy yet, else the next one.

    Only of the next few: a replica alone on its host would have to hold nearly everything.
    """
    ranked = sorted(places, key=lambda place: (weights(place[0])[bucket], place[0]), reverse=True)
    chosen: list[Place] = []
    while ranked and len(chosen) < copies:
        hosts = {host for _, host in chosen}
        elsewhere = (place for place in ranked[:NEXT_FEW] if place[1] is None or place[1] not in hosts)
        best = next(elsewhere, ranked[0])
        chosen.append(best)
        ranked.remove(best)
    return tuple(map(itemgetter(0), chosen))

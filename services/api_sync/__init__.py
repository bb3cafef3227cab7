"""Schedules from another system's API into the table: `{"data": [{"domain_config_id", "data": {…}}, …]}`.

Start reading at sync.py. answer.py reads the body, applying.py writes, removals.py judges what vanished, state.py holds
the lease and the last result, replica.py is what a replica does with all that. Items and merging are one floor below
(`items`, `edits`, `upsert`), where the repository can use them.
"""

from services.api_sync.answer import UnusableAnswer
from services.api_sync.applying import SyncRules
from services.api_sync.client import SyncInterrupted
from services.api_sync.replica import ReplicaSync
from services.api_sync.report import Entry, Kind, Outcome, SyncReport
from services.api_sync.state import StoredState, SyncState
from services.api_sync.sync import ApiSync, ApiSyncFailed, open_api_sync

__all__ = [
    "ApiSync",
    "ApiSyncFailed",
    "Entry",
    "Kind",
    "Outcome",
    "ReplicaSync",
    "StoredState",
    "SyncInterrupted",
    "SyncReport",
    "SyncRules",
    "SyncState",
    "UnusableAnswer",
    "open_api_sync",
]

"""API sync: schedules from another system's API into the table. `{"data": [{"domain_config_id", "data": {…}}, …]}`

Start reading at sync.py. answer.py reads the response, applying.py writes, removals.py judges what vanished, state.py
holds the lease and the last result, replica.py runs the sync in a replica. Items and merging (items.py, edits.py,
upsert.py) make no requests: the repository uses them and loads nothing else of this room.
"""

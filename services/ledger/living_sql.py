"""Who is alive, for statements that judge the dead or the absent. All of them judge by one instant, `moment`."""

# Everything is judged by one instant: after a stall of the server, wherever in the statement it struck, our own
# heartbeat is as old as those of the others.
MOMENT = "moment AS MATERIALIZED (SELECT clock_timestamp() AS now)"

# A replica that was not itself seen alive, without a gap, for a whole timeout declares no other dead.
WE_LIVE = """
    EXISTS (
        SELECT FROM scheduler_instances AS we
        WHERE we.instance_id = %(instance_id)s AND we.incarnation = %(incarnation)s
          AND we.heartbeat_at > moment.now - make_interval(secs => %(gap)s)
          AND we.alive_since <= moment.now - make_interval(secs => %(timeout)s)
    )
"""

"""How the replicas share the schedules: buckets, who must hold which, and who tries a fire first."""

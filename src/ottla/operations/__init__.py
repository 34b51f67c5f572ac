"""What operators do to a cluster, without a way to show it: the command line and the console share this room.

`groups/` reads the progress of groups and resets their offsets. `queues/` finds and changes what is parked in queues.
`dead_letters/` reads, redrives and purges dead letters. `reassignment/` moves replicas. `schemas/` lays out schemas.
`security/` decides by ACLs. Functions take a `Cluster`; decisions are pure modules beside them. Nothing here prints,
asks for a confirmation or knows a page.
"""

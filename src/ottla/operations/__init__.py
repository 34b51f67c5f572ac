"""Operations on a cluster, without a user interface: the command line and the console share them.

`groups/` reads the progress of groups and resets their offsets. `queues/` finds and changes what is parked in queues.
`dead_letters/` reads, redrives and purges dead letters. `reassignment/` moves replicas. `schemas/` lays out schemas.
`security/` decides by ACLs. Functions take a `Cluster`; decisions are pure modules beside them. Nothing here prints,
asks for confirmation or renders pages.
"""

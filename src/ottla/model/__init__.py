"""What every room shares: ids and offsets as distinct types, error codes and the exception tree, invariants.

Nothing here does I/O or knows any other room.
"""

"""The probes of `ottla doctor`: each looks at one part of the machine and returns facts. They change nothing, and a
part that cannot be looked at is None, not an error."""

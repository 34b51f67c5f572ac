"""`ottla produce`: lines of files or of a pipe as records into a topic."""

"""`ottla topics`: lists, describes, creates, deletes and changes topics."""

"""`ottla pipeline`: make, check, run, watch and reset pipelines that are declared in files."""

"""`ottla completion`: command completion for bash, zsh and fish."""

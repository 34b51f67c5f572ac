"""`ottla tokens`: delegation tokens, with which a job logs in as the user that created them."""

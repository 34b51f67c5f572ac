"""The admin clients, and the requests that they send, one function for each."""

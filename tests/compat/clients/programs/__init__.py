"""The client programs of the Python libraries; `command_loop` is what they share."""

"""`ottla console`: the web console in a process of its own; the console itself is `ottla.console`."""

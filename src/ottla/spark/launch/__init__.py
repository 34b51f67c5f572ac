"""Starting Spark: Java, a Spark home, a session with settings that fit."""

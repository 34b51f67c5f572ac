"""Data dirs: lock, identity, checkpoint files, file names, and folders that are set aside. Start with `data_dir.py`."""

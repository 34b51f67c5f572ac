"""The wheels and the sdist of `make wheels`, checked by `check_wheel.py`."""

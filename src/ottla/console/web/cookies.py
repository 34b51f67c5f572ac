"""The console's cookies."""


def cookie_header(
    name: str, value: str, *, is_secure: bool, same_site: str = "Strict", seconds: int | None = None
) -> str:
    """A cookie that scripts cannot read and other sites cannot send; with 0 seconds, the browser forgets it."""
    age = "" if seconds is None else f"; Max-Age={seconds}"
    return f"{name}={value}; Path=/{age}; HttpOnly; SameSite={same_site}{'; Secure' if is_secure else ''}"

"""Connection profiles: named clusters in a file of the user, and which cluster a command connects to.

The file is `$OTTLA_CONFIG`, else `ottla/config.toml` in `$XDG_CONFIG_HOME` or `~/.config`. Only its owner may read it.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.command_config import given_command_config
from ottla.model.errors import InvalidRequestError, MisuseError

if TYPE_CHECKING:
    from ottla.transport.client_security import ClientSecurity

BOOTSTRAP_DEFAULT: Final = "localhost:9092"
SETTINGS: Final = {
    "client.id": "name that brokers see in their logs and quotas",
    "request.timeout.ms": "how long to wait for a broker's response",
    "socket.connection.setup.timeout.ms": "how long to wait for a connection",
    "command.config": "file with Kafka's client properties, such as security.protocol and sasl.jaas.config",
}
"""What a profile may set besides its brokers."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ProfileError(MisuseError):
    """A profile that does not exist, or a file of profiles that cannot be read."""


class ProfileExistsError(InvalidRequestError):
    """A profile of that name exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Which brokers a command connects to, and how."""

    bootstrap: str = BOOTSTRAP_DEFAULT
    client_id: str = "ottla-cli"
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    profile: str | None = None
    """The profile that named the brokers, for error messages."""
    command_config: str | None = None
    """The file with the client properties; None if there is none."""

    @property
    def options(self) -> dict[str, Any]:
        """The security options of a client, by the names of `ClientConfig`. Reads the file. Raises `MisuseError`."""
        if self.command_config is None:
            return {}
        from ottla.client.properties import read_properties, security_options

        try:
            return security_options(read_properties(self.command_config))
        except MisuseError as error:
            raise MisuseError(f"{self.command_config}: {error}") from None

    @property
    def security(self) -> "ClientSecurity | None":
        """How connections are encrypted and log in; None for PLAINTEXT. Raises `MisuseError`."""
        if self.command_config is None:
            return None
        from ottla.client.options import ClientConfig

        options = self.options
        try:
            return ClientConfig(**options).security
        except MisuseError as error:
            raise MisuseError(f"{self.command_config}: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProfile:
    """One profile of the file."""

    bootstrap: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def connection(self, name: str) -> Connection:
        """The connection that it describes under this name."""
        made = Connection(bootstrap=self.bootstrap, profile=name)
        return replace(
            made,
            client_id=self.settings.get("client.id", made.client_id),
            request_timeout_ms=int(self.settings.get("request.timeout.ms", made.request_timeout_ms)),
            connect_timeout_ms=int(self.settings.get("socket.connection.setup.timeout.ms", made.connect_timeout_ms)),
            command_config=self.settings.get("command.config"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """All profiles, and the one in use."""

    current: str | None = None
    profiles: Mapping[str, StoredProfile] = field(default_factory=dict)

    def find(self, name: str) -> StoredProfile:
        """The profile of that name. Raises `ProfileError`."""
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none; create one with `ottla profile create`"
            raise ProfileError(f"profile {name!r} does not exist; existing profiles: {known}")
        return self.profiles[name]


def chosen_connection(
    bootstrap: str | None, profile: str | None, environment: Mapping[str, str] | None = None
) -> Connection:
    """The connection of a command: options before the environment, the environment before the profile in use.

    `--bootstrap` replaces only the brokers of a profile that is named as well, and `--command-config` its properties.
    """
    chosen = _chosen(bootstrap, profile, environment)
    given = given_command_config()
    return chosen if given is None else replace(chosen, command_config=given)


def _chosen(bootstrap: str | None, profile: str | None, environment: Mapping[str, str] | None) -> Connection:
    env = os.environ if environment is None else environment
    if profile is not None:
        named = read_profiles(config_file(env)).find(profile).connection(profile)
        return named if bootstrap is None else replace(named, bootstrap=bootstrap, profile=None)
    given = bootstrap if bootstrap is not None else env.get("OTTLA_BOOTSTRAP")
    if given:
        return Connection(bootstrap=given)
    stored = read_profiles(config_file(env))
    in_use = env.get("OTTLA_PROFILE") or stored.current
    return Connection() if in_use is None else stored.find(in_use).connection(in_use)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What options or the environment say instead of a project's own settings; None for what they do not name."""

    bootstrap: str | None = None
    command_config: str | None = None


def overriding_connection(
    bootstrap: str | None, profile: str | None, environment: Mapping[str, str] | None = None
) -> Overrides:
    """The brokers and client properties that options or the environment name. The profile in use does not count."""
    env = os.environ if environment is None else environment
    named = env.get("OTTLA_BOOTSTRAP") or env.get("OTTLA_PROFILE")
    if bootstrap is None and profile is None and not named:
        return Overrides(command_config=given_command_config())
    chosen = chosen_connection(bootstrap, profile, env)
    return Overrides(bootstrap=chosen.bootstrap, command_config=chosen.command_config)


def config_file(environment: Mapping[str, str]) -> Path:
    """Where the profiles are stored."""
    if environment.get("OTTLA_CONFIG"):
        return Path(environment["OTTLA_CONFIG"])
    base = environment.get("XDG_CONFIG_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    folder = Path(base) if base.startswith("/") else Path(environment.get("HOME", "/")) / ".config"
    return folder / "ottla" / "config.toml"


def read_profiles(path: Path) -> Profiles:
    """The profiles of the file; none if it is missing. Raises `ProfileError` if it is not valid."""
    try:
        found = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return Profiles()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path} is not valid TOML: {error}") from error
    sections = found.get("profiles", {})
    if not isinstance(sections, dict) or not isinstance(found.get("current", ""), str):
        raise ProfileError(f"{path}: expected a table `profiles` and a name `current`")
    return Profiles(
        current=found.get("current"),
        profiles={name: _stored(path, name, section) for name, section in sections.items()},
    )


def write_profiles(path: Path, profiles: Profiles) -> None:
    """Replaces the file atomically; only the owner may read it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lines = [] if profiles.current is None else [f"current = {_quoted(profiles.current)}", ""]
    for name, profile in sorted(profiles.profiles.items()):
        lines += [f"[profiles.{_quoted(name)}]", f"bootstrap = {_quoted(profile.bootstrap)}"]
        if profile.settings:
            pairs = ", ".join(f"{_quoted(key)} = {_quoted(value)}" for key, value in sorted(profile.settings.items()))
            lines.append(f"settings = {{ {pairs} }}")
        lines.append("")
    new = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write("\n".join(lines))
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def checked_profile(name: str, bootstrap: str, settings: Mapping[str, str]) -> StoredProfile:
    """A profile that can be stored. Raises `ProfileError` for a name or a setting that is not valid."""
    from ottla.transport.addresses import parse_bootstrap

    if not _NAME.fullmatch(name):
        raise ProfileError(f"{name!r} is not a valid profile name; use letters, digits, dots, dashes and underscores")
    addresses = ",".join(map(str, parse_bootstrap(bootstrap)))
    for key, value in settings.items():
        if key not in SETTINGS:
            near = get_close_matches(key, SETTINGS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known settings: {', '.join(SETTINGS)}"
            raise ProfileError(f"unknown setting {key!r}; {hint}")
        if key.endswith(".ms") and not (value.isascii() and value.isdecimal() and 0 < int(value) < 2**31):
            raise ProfileError(f"{key}={value}: expected milliseconds, 1 or more")
        if not value or not value.isprintable():
            raise ProfileError(f"{key}={value!r}: expected printable characters")
    return StoredProfile(bootstrap=addresses, settings=dict(settings))


def _stored(path: Path, name: str, section: Any) -> StoredProfile:
    match section:
        case {"bootstrap": str(bootstrap), **rest} if rest.keys() <= {"settings"}:
            settings = rest.get("settings", {})
            if isinstance(settings, dict):
                try:
                    return checked_profile(name, bootstrap, {key: str(value) for key, value in settings.items()})
                except (ProfileError, InvalidRequestError) as error:
                    raise ProfileError(f"{path}, profile {name}: {error}") from error
    raise ProfileError(f"{path}, profile {name}: expected `bootstrap` and, if any, `settings`")


def _quoted(text: str) -> str:
    """A TOML string of printable characters."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

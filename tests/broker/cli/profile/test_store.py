"""Connection profiles: which cluster a command connects to, how the file is kept, and `ottla profile`."""

import stat
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.profile.store import (
    SETTINGS,
    Connection,
    ProfileError,
    Profiles,
    StoredProfile,
    checked_profile,
    chosen_connection,
    config_file,
    read_profiles,
    write_profiles,
)
from tests.unit.cli.command_line import CommandLine


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "ottla.toml"
    monkeypatch.setenv("OTTLA_CONFIG", str(path))
    monkeypatch.delenv("OTTLA_PROFILE", raising=False)
    return path


PROFILES = Profiles(
    current="used",
    profiles={
        "used": StoredProfile(bootstrap="used:1"),
        "named": StoredProfile(bootstrap="named:2", settings={"client.id": "me", "request.timeout.ms": "5"}),
    },
)


@pytest.mark.parametrize(
    ("bootstrap", "profile", "environment", "expected"),
    [
        (None, None, {}, Connection(bootstrap="used:1", profile="used")),
        (None, None, {"OTTLA_PROFILE": "named"}, PROFILES.profiles["named"].connection("named")),
        (None, None, {"OTTLA_BOOTSTRAP": "env:3", "OTTLA_PROFILE": "named"}, Connection(bootstrap="env:3")),
        (None, "named", {"OTTLA_BOOTSTRAP": "env:3"}, PROFILES.profiles["named"].connection("named")),
        ("opt:4", None, {"OTTLA_BOOTSTRAP": "env:3", "OTTLA_PROFILE": "named"}, Connection(bootstrap="opt:4")),
        ("opt:4", "named", {}, Connection(bootstrap="opt:4", client_id="me", request_timeout_ms=5)),
    ],
)
def test_options_go_before_the_environment_and_that_before_the_profile_in_use(
    config: Path, bootstrap: str | None, profile: str | None, environment: Mapping[str, str], expected: Connection
) -> None:
    write_profiles(config, PROFILES)
    assert expected == chosen_connection(bootstrap, profile, {**environment, "OTTLA_CONFIG": str(config)})


def test_without_any_file_it_is_localhost(config: Path) -> None:
    assert Connection(bootstrap="localhost:9092") == chosen_connection(None, None, {"OTTLA_CONFIG": str(config)})


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HOME": "/users/a"}, "/users/a/.config/ottla/config.toml"),
        ({"HOME": "/users/a", "XDG_CONFIG_HOME": "/xdg"}, "/xdg/ottla/config.toml"),
        ({"HOME": "/users/a", "XDG_CONFIG_HOME": "relative"}, "/users/a/.config/ottla/config.toml"),
        ({"HOME": "/users/a", "XDG_CONFIG_HOME": "/xdg", "OTTLA_CONFIG": "/mine"}, "/mine"),
    ],
)
def test_the_file_is_where_xdg_says(environment: Mapping[str, str], expected: str) -> None:
    assert Path(expected) == config_file(environment)


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
VALUES = st.text(min_size=1, max_size=20).filter(str.isprintable)


@given(
    profiles=st.dictionaries(NAMES, st.builds(dict, **{"client.id": VALUES}), max_size=4), port=st.integers(1, 65535)
)
def test_what_is_written_is_read_again(
    profiles: dict[str, dict[str, str]], port: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("round") / "config.toml"
    stored = {name: checked_profile(name, f"host:{port}", settings) for name, settings in profiles.items()}
    written = Profiles(current=next(iter(stored), None), profiles=stored)
    write_profiles(path, written)
    assert written == read_profiles(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("= nonsense", "is not valid TOML"),
        ("profiles = 3", "expected a table"),
        ("[profiles.a]\n", "profile a: expected `bootstrap`"),
        ('[profiles.a]\nbootstrap = "h:x"', "profile a: "),
        ('[profiles.a]\nbootstrap = "h:1"\nport = 3', "profile a: expected `bootstrap`"),
        ('[profiles.a]\nbootstrap = "h:1"\nsettings = {"client.idd" = "x"}', "did you mean client.id?"),
    ],
)
def test_a_file_that_makes_no_sense_is_named(config: Path, text: str, words: str) -> None:
    config.parent.mkdir()
    config.write_text(text)
    with pytest.raises(ProfileError) as raised:
        read_profiles(config)
    assert (True, True) == (str(config) in str(raised.value), words in str(raised.value)), raised.value


def test_the_commands(config: Path, ottla: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    ottla.ok("topics", "create", "profiled")
    made = ottla.ok("profile", "create", "here", "--bootstrap", ottla.bootstrap, "--set", "client.id=it's me")
    assert f"created profile here ({ottla.bootstrap}); commands use it from now on\n" == made.out
    assert "OTTLA_BOOTSTRAP is set" in made.err
    assert 0o600 == stat.S_IMODE(config.stat().st_mode)
    ottla.ok("profile", "create", "nowhere", "--bootstrap", "127.0.0.1:1")
    assert [("here", False), ("nowhere", True)] == [
        (each["name"], each["in_use"]) for each in ottla.ok("profile", "list", "--json").json
    ]
    exists = ottla("profile", "create", "here", "--bootstrap", "127.0.0.1:1")
    assert (1, "ottla: profile here exists already; pass --replace to replace it\n") == (exists.status, exists.err)

    # `CommandLine` sets OTTLA_BOOTSTRAP; a named profile goes before it.
    unreachable = ottla("topics", "list", "--profile", "nowhere")
    assert (3, True) == (unreachable.status, unreachable.err.startswith("ottla: profile nowhere: cannot reach"))
    assert "profiled" in ottla.ok("topics", "list", "--profile", "here").out
    unknown = ottla("topics", "list", "--profile", "there")
    assert (2, "ottla: profile 'there' does not exist; existing profiles: here, nowhere\n") == (
        unknown.status,
        unknown.err,
    )

    assert {"in_use": "nowhere"} == ottla.ok("profile", "use", "nowhere", "--json").json
    assert "commands use profile here from now on\n" == ottla.ok("profile", "use", "here").out
    shown = ottla.ok("profile", "show").out
    assert ["here", ottla.bootstrap, "client.id=it's me", "yes", str(config)] == [
        line.split("  ", 1)[1].strip() for line in shown.splitlines()
    ]
    assert 2 == ottla("profile", "delete", "here").status, "not a terminal, and no --yes"
    assert "deleted profile here; 1 profile left\n" == ottla.ok("profile", "delete", "here", "--yes").out
    assert (None, ["nowhere"]) == (read_profiles(config).current, list(read_profiles(config).profiles))
    assert {"deleted": "nowhere", "left": []} == ottla.ok("profile", "delete", "nowhere", "--yes", "--json").json
    none = ottla("profile", "show")
    assert (2, True) == (none.status, "no profile is in use" in none.err)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "a b", "--bootstrap", "h:1"), "is not a valid profile name"),
        (("create", "a", "--bootstrap", "h:x"), "h:x"),
        (("create", "a"), "--bootstrap"),
        (("create", "a", "--bootstrap", "h:1", "--set", "colour=red"), f"known settings: {', '.join(SETTINGS)}"),
        (("create", "a", "--bootstrap", "h:1", "--set", "request.timeout.ms=soon"), "expected milliseconds"),
        (("use", "a"), "profile 'a' does not exist"),
        (("use",), "pass either PROFILE or --none"),
        (("show", "a"), "profile 'a' does not exist; existing profiles: none"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], words: str, capfd: pytest.CaptureFixture[str]) -> None:
    done = CommandLine("127.0.0.1:1", capfd)("profile", *arguments)
    assert (2, True) == (done.status, words in done.err), done

"""`ottla profile`: named connections, so that commands need no `--bootstrap`. `store.py` keeps and chooses them."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ottla.cli.command_runner import application, examples, guarded
from ottla.cli.confirmation import confirm
from ottla.cli.options import AsJson, AssumeYes, UsageError, parse_pairs
from ottla.cli.output import human_count, print_facts, print_json, print_table, say, tell
from ottla.cli.profile.store import (
    SETTINGS,
    ProfileError,
    ProfileExistsError,
    Profiles,
    StoredProfile,
    checked_profile,
    config_file,
    read_profiles,
    write_profiles,
)

app = application(
    "Store connections to clusters under a name and choose the one that commands use.\n\n"
    "A command connects to the brokers of, in this order: --bootstrap, --profile, OTTLA_BOOTSTRAP, OTTLA_PROFILE, "
    "the profile in use (`ottla profile use`), localhost:9092."
)

ProfileName = Annotated[str, typer.Argument(metavar="PROFILE", help="Name of the profile.", show_default=False)]


@app.command(
    "create",
    epilog=examples(
        "ottla profile create prod --bootstrap broker-1:9092,broker-2:9092",
        "ottla profile create slow --bootstrap far.example:9092 --set request.timeout.ms=120000",
    ),
)
def create(
    name: ProfileName,
    bootstrap: Annotated[
        str, typer.Option("--bootstrap", metavar="HOST:PORT", help="Brokers to connect to; separate several by commas.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help=f"One of {', '.join(SETTINGS)}; may be repeated."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a profile of that name.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create a profile and use it from now on."""
    with guarded():
        stored = checked_profile(name, bootstrap, parse_pairs(settings or (), "--set"))
        path, profiles = _read()
        if name in profiles.profiles and not replace:
            raise ProfileExistsError(f"profile {name} exists already; pass --replace to replace it")
        write_profiles(path, Profiles(current=name, profiles={**profiles.profiles, name: stored}))
        if as_json:
            print_json(_document(name, stored, in_use=True))
        else:
            tell(f"created profile {name} ({stored.bootstrap}); commands use it from now on")
        if os.environ.get("OTTLA_BOOTSTRAP"):
            say("OTTLA_BOOTSTRAP is set and takes precedence; unset it, or pass --profile")


@app.command("list", epilog=examples("ottla profile list", "ottla profile list --json"))
def list_profiles(as_json: AsJson = False) -> None:
    """List the profiles and show which one is in use."""
    with guarded():
        _, profiles = _read()
        documents = [
            _document(name, stored, in_use=name == profiles.current)
            for name, stored in sorted(profiles.profiles.items())
        ]
        if as_json:
            print_json(documents)
            return
        rows = [
            (each["name"], each["bootstrap"], _settings_text(each["settings"]), "yes" if each["in_use"] else "")
            for each in documents
        ]
        print_table(("profile", "bootstrap", "settings", "in use"), rows)


@app.command("show", epilog=examples("ottla profile show", "ottla profile show prod"))
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="PROFILE", help="Name of the profile.", show_default="the one in use")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show one profile and the file it is stored in."""
    with guarded():
        path, profiles = _read()
        chosen = name or os.environ.get("OTTLA_PROFILE") or profiles.current
        if chosen is None:
            raise ProfileError("no profile is in use; choose one with `ottla profile use PROFILE`")
        document = _document(chosen, profiles.find(chosen), in_use=chosen == profiles.current)
        if as_json:
            print_json(document)
            return
        print_facts(
            {
                "profile": chosen,
                "bootstrap": document["bootstrap"],
                "settings": _settings_text(document["settings"]) or "none",
                "in use": "yes" if document["in_use"] else "no",
                "stored in": str(path),
            }
        )


@app.command("use", epilog=examples("ottla profile use prod", "ottla profile use --none"))
def use(
    name: Annotated[
        str | None, typer.Argument(metavar="PROFILE", help="Name of the profile.", show_default=False)
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no profile from now on.")] = False,
    as_json: AsJson = False,
) -> None:
    """Choose the profile that commands use from now on."""
    if (name is None) is not none:
        raise UsageError("pass either PROFILE or --none")
    with guarded():
        path, profiles = _read()
        if name is not None:
            profiles.find(name)
        write_profiles(path, Profiles(current=name, profiles=profiles.profiles))
        if as_json:
            print_json({"in_use": name})
        else:
            tell("no profile is in use" if name is None else f"commands use profile {name} from now on")


@app.command("delete", epilog=examples("ottla profile delete prod --yes"))
def delete(name: ProfileName, yes: AssumeYes = False, as_json: AsJson = False) -> None:
    """Delete a profile."""
    with guarded():
        path, profiles = _read()
        profiles.find(name)
        confirm(f"delete profile {name}?", yes=yes)
        kept = {each: stored for each, stored in profiles.profiles.items() if each != name}
        current = None if profiles.current == name else profiles.current
        write_profiles(path, Profiles(current=current, profiles=kept))
        if as_json:
            print_json({"deleted": name, "left": sorted(kept)})
        else:
            tell(f"deleted profile {name}; {human_count(len(kept), 'profile')} left")


def _read() -> tuple[Path, Profiles]:
    path = config_file(os.environ)
    return path, read_profiles(path)


def _document(name: str, profile: StoredProfile, *, in_use: bool) -> dict[str, Any]:
    return {"name": name, "bootstrap": profile.bootstrap, "settings": dict(profile.settings), "in_use": in_use}


def _settings_text(settings: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(settings.items()))

"""`gymtap skill`: our guide to debugging, for coding agents: shown, or installed where they look for skills."""

from pathlib import Path
from typing import Annotated

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import JsonOption


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("skill")(_skill)


def _skill(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A page; the guide itself if left out.")] = None,
    *,
    listed: Annotated[bool, typer.Option("--list", help="List the pages.")] = False,
    install: Annotated[
        Path | None,
        typer.Option(
            "--install", metavar="DIR", help="Write all pages under DIR, where your coding agent looks for skills."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite pages that were edited.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the debugging guide that coding agents work from, or install it."""
    from gymtap.proxy.skill.guide import page, pages

    if install is not None:
        _install(install, force, as_json)
    elif listed:
        found = [{"name": one.name, "path": one.path, "title": one.title} for one in pages()]
        if as_json:
            screen.write_json({"pages": found})
            return
        for one in found:
            screen.out().print(f"{one['name']:<14} {one['title']}")
    else:
        shown = page(name or "guide")
        if as_json:
            screen.write_json({"name": shown.name, "path": shown.path, "text": shown.text})
        else:
            screen.write_bytes(shown.text.encode())


def _install(directory: Path, force: bool, as_json: bool) -> None:
    from gymtap.proxy.skill.guide import install

    done = install(directory, force=force)
    if as_json:
        screen.write_json({"files": [{"path": str(one.path), "how": one.how} for one in done]})
        return
    for one in done:
        screen.out().print(f"{one.how:<10} {one.path}")

"""`gymtap engines`: the grammar engines that `gymtap check tools` asks; exit status 2 where one is missing."""

from typing import Annotated

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import EnginesOption, JsonOption

_MISSING_EXIT_CODE = 2


def register(app: typer.Typer) -> None:
    """Add the command, with its two."""
    engines = typer.Typer(rich_markup_mode=None, help="The grammar engines that vLLM runs.")
    engines.command("install")(_install)
    engines.command("show")(_show)
    app.add_typer(engines, name="engines")


def _install(
    version: Annotated[str, typer.Argument(metavar="VLLM", help="The vLLM release whose engines to get.")] = "0.32",
) -> None:
    """Install the engines of a vLLM release, without torch, apart from this environment."""
    from gymtap.proxy.check.engines import install

    screen.note(f"the engines of vLLM {version} are in {install(version)}")
    _show()


def _show(engines_python: EnginesOption = None, *, as_json: JsonOption = False) -> None:
    """Show which engines can be run, and their versions."""
    from gymtap.proxy.check.engines import Engines

    with Engines(python=engines_python) as engines:
        versions = engines.versions()
    if as_json:
        screen.write_json(versions)
    else:
        for name, version in versions.items():
            screen.out().print(f"{name:<12}{version or 'missing: gymtap engines install'}")
    raise typer.Exit(0 if all(versions.values()) else _MISSING_EXIT_CODE)

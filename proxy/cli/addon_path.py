"""`gymtap addon-path`: where the script for somebody's own mitmproxy is."""

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("addon-path")(_addon_path)


def _addon_path() -> None:
    """Print the path of the mitmproxy script, as in: mitmweb -s $(gymtap addon-path)."""
    from importlib.util import find_spec

    found = find_spec("gymtap.proxy.mitm")
    assert found is not None
    assert found.submodule_search_locations
    typer.echo(f"{found.submodule_search_locations[0]}/script.py")

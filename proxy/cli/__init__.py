"""The command line: one face of the core; every command has `--json`."""


def main() -> None:
    """Run the `gymtap` command."""

"""The command line: one face of the core; every command has `--json`."""


def main() -> None:
    """Run the `gymtap` command and exit with its status."""
    import sys  # noqa: PLC0415 - importing gymtap.proxy.cli loads nothing

    try:
        from gymtap.proxy.cli.program import execute  # noqa: PLC0415 - the same

        sys.exit(execute(sys.argv[1:]))
    except KeyboardInterrupt:  # while it was still loading
        sys.exit(130)

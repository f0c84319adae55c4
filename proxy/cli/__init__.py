"""The command line: one face of the core. Importing it loads nothing: a command loads what it needs when it runs."""


def main() -> None:
    """Run the `gymtap` command and exit with its status."""
    import sys

    try:
        from gymtap.proxy.cli.program import execute

        sys.exit(execute(sys.argv[1:]))
    except KeyboardInterrupt:  # while it was still loading
        sys.exit(130)

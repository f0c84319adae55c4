"""`python -m gymtap` is the `gymtap` command."""

from gymtap.proxy.cli import main

main()

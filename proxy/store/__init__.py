"""The store: captures on disk, written by one process and read by any."""

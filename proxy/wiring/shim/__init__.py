"""The folder that goes on PYTHONPATH: a `sitecustomize` and what it loads, standard library only, Python 3.9 or newer.

Nothing here may import gymtap: it runs in Gym's own environment, where gymtap is not installed.
"""

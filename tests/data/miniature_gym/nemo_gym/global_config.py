"""The configuration where Gym keeps it: resolved once, from the environment in a server's process."""

import json
import os

_GLOBAL_CONFIG_DICT = json.loads(os.environ["NEMO_GYM_CONFIG_DICT"])


def own():
    """This process's own entry: `{host, port, ...}`."""
    name = os.environ.get("NEMO_GYM_CONFIG_PATH")
    if name is None:
        return _GLOBAL_CONFIG_DICT["head_server"]
    (implementations,) = _GLOBAL_CONFIG_DICT[name].values()
    (entry,) = implementations.values()
    return entry

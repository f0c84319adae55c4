# ruff: noqa: T201 - it answers on stdout
"""The miniature Gym's main process: starts every server of the configuration, posts rows to the first, stops.

`run.py ROWS STATUS`: prints one JSON line per row and exits with STATUS.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

from nemo_gym import global_config

HERE = pathlib.Path(__file__).parent
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def address(instance):
    (implementations,) = instance.values()
    (entry,) = implementations.values()
    return f"http://{entry['host']}:{entry['port']}"


def ready(url):
    while True:
        try:
            return DIRECT.open(url + "/", timeout=20).read()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)


def main():
    rows, status = int(sys.argv[1]), int(sys.argv[2])
    servers = {name: item for name, item in global_config._GLOBAL_CONFIG_DICT.items() if name != "head_server"}
    command = f"exec {sys.executable} {HERE / 'serve.py'}"
    processes = [
        subprocess.Popen(
            ["/bin/bash", "-c", command], env={**os.environ, "NEMO_GYM_CONFIG_PATH": name}, stdout=subprocess.DEVNULL
        )
        for name in servers
    ]
    try:
        urls = [address(item) for item in servers.values()]
        for url in urls:
            ready(url)
        for row in range(rows):
            body = json.dumps({"_ng_task_index": row, "_ng_rollout_index": 0}).encode()
            print(DIRECT.open(urls[0] + "/run", data=body, timeout=20).read().decode(), flush=True)
    finally:
        for process in processes:
            process.send_signal(signal.SIGINT)
        for process in processes:
            process.wait()
    return status


if __name__ == "__main__":
    sys.exit(main())

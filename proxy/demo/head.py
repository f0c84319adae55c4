"""The head server: which servers there are, and the configuration as Gym gives it (YAML inside a JSON string)."""

import orjson
import yaml
from aiohttp import web

from gymtap.proxy.demo.server import Egress

_TYPES = {
    "weather": "resources_servers",
    "weather_simple_agent": "responses_api_agents",
    "weather_environment_server": "environment_servers",
    "policy_model": "responses_api_models",
}


class HeadServer:
    """`head_server`; its answers give the addresses by which clients reach the others."""

    def __init__(self, egress: Egress) -> None:
        self.name = "head_server"
        self._egress = egress
        self.app = web.Application()
        self.app.router.add_get("/global_config_dict_yaml", self._config)
        self.app.router.add_get("/server_instances", self._instances)

    async def _config(self, _: web.Request) -> web.StreamResponse:
        config = {
            name: {kind: {name: {"host": "127.0.0.1", "port": _port(self._egress.addresses[name])}}}
            for name, kind in _TYPES.items()
        }
        return web.Response(body=orjson.dumps(yaml.safe_dump(config)), content_type="application/json")

    async def _instances(self, _: web.Request) -> web.StreamResponse:
        instances = [
            {"process_name": name, "server_type": kind, "name": name, "url": self._egress.addresses[name]}
            for name, kind in _TYPES.items()
        ]
        return web.Response(body=orjson.dumps(instances), content_type="application/json")


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])

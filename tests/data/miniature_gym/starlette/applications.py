"""An application object with the call that every request passes through."""


class Starlette:
    """Calls its endpoint with the scope's headers."""

    def __init__(self, endpoint):
        self.endpoint = endpoint

    async def __call__(self, scope, receive, send):
        await self.endpoint(scope, receive, send)

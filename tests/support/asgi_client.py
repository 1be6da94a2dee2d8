"""A client of an application in this process, which keeps its cookies as a browser does."""

import anyio
import httpx
from starlette.types import ASGIApp


class AsgiClient:
    """Asks an application as if it were at http://localhost; follows no redirection."""

    def __init__(self, app: ASGIApp, headers: dict[str, str]) -> None:
        self._app, self._headers = app, headers
        self.cookies = httpx.Cookies()

    def get(self, path: str) -> httpx.Response:
        return self._ask("GET", path)

    def post(self, path: str, **given) -> httpx.Response:
        return self._ask("POST", path, **given)

    def _ask(self, method: str, path: str, **given) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(self._app),
                base_url="http://localhost",
                cookies=self.cookies,
                headers=self._headers,
            ) as client:
                answer = await client.request(method, path, **given)
                self.cookies = client.cookies
                return answer

        return anyio.run(ask)

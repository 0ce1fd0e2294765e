"""Pages (stub)."""

from typing import Any
from starlette.responses import PlainTextResponse


def routes_of_pages(office: Any) -> list[Any]:
    return []


def error_page(office: Any, request: Any, status: int, words: str) -> Any:
    return PlainTextResponse(words, status)

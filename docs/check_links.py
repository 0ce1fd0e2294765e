"""Check the built site: every local link and fragment exists, and nothing is loaded from elsewhere.

    python docs/check_links.py docs/_build/html

External links are not followed; they have to be https.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("source", "srcset")}
SHOWN_ONLY = {"canonical", "author", "license"}


class Page(HTMLParser):
    """The links and the anchors of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[tuple[str, bool]] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what a tag links to, and whether the browser loads it."""
        found = {name: value or "" for name, value in attrs}
        self.anchors.update(found[name] for name in ("id", "name") if name in found)
        for name in ("href", "src", "srcset"):
            loaded = (tag, name) in LOADED and found.get("rel") not in SHOWN_ONLY
            parts = found.get(name, "").split(",") if name == "srcset" else [found.get(name, "")]
            self.links += [(part.split()[0], loaded) for part in parts if part.strip()]


@cache
def _page(path: Path) -> Page:
    return Page(path)


def problems(folder: Path) -> Iterator[str]:
    """Return a sentence for each link that is wrong."""
    for path in sorted(folder.rglob("*.html")):
        for link, loaded in _page(path).links:
            if reason := _wrong(link, loaded, path):
                yield f"{path.relative_to(folder)}: {link} {reason}"


def _wrong(link: str, loaded: bool, path: Path) -> str:
    parts = urlsplit(link)
    if parts.scheme == "data":
        return ""
    if parts.scheme or parts.netloc:
        if loaded:
            return "is loaded from elsewhere"
        return "" if parts.scheme in ("https", "mailto") else "is not https"
    target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return "does not exist"
    fragment = unquote(parts.fragment)
    if fragment and target.suffix == ".html" and fragment not in _page(target).anchors:
        return "has no such fragment"
    return ""


def main() -> None:
    """Print what is wrong and fail if anything is."""
    found = sorted(set(problems(Path(sys.argv[1]).resolve())))
    print("\n".join(found) or "all links of the site resolve")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()

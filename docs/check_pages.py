"""Look at the built site in a browser: nothing is cut off, and the search finds things.

    python docs/check_pages.py docs/_build/html

Needs chromium on the path, and says so where there is none. Every page is opened in frames of both
widths, from a server on this machine. What is wider than the page has to have a scroll bar of its
own, and lines of code of up to 88 characters need none on a wide screen. The search is opened as a
file, as people do who unpack the site; what it has to find is in steps/search.toml.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote_plus

from steps.search import finds

WIDTHS = (390, 1280)
LINE = 88  # characters that fit where the screen is as wide as the last of these
FIRST = 5  # so many results are seen without scrolling
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
_OPTIONS += ("--disable-background-networking", "--disable-component-update", "--no-first-run")
_LOOK = """<!doctype html><body><script>
const pages = PAGES, widths = WIDTHS, found = [];
const named = e => e.tagName.toLowerCase() + (e.className ? "." + e.classList[0] : "");
function look(page, width, view) {
  const root = view.document.scrollingElement;
  const wrong = text => found.push(`${page} at ${width} px: ${text}`);
  if (root.scrollWidth > width + 1) wrong(`the page is ${root.scrollWidth} px wide`);
  const scrolls = e => ["auto", "scroll"].includes(view.getComputedStyle(e).overflowX);
  for (const e of view.document.querySelectorAll("article *")) {
    const style = view.getComputedStyle(e), hides = ["hidden", "clip"].includes(style.overflowX);
    if (hides && e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1)
      wrong(`${named(e)} hides ${e.scrollWidth - e.clientWidth} px`);
    const lines = (e.innerText ?? "").split("\\n");  // mathematics has no such text
    const longest = Math.max(...lines.map(line => line.trimEnd().length));
    const cut = e.matches("pre") && e.scrollWidth > e.clientWidth + 1 && longest <= LINE;
    if (cut && width >= Math.max(...widths)) wrong(`a line of ${longest} characters is cut`);
    if (!e.matches("table, pre, img, svg, figure, math, code, dt, p")) continue;
    let box = e.parentElement;
    while (box && !scrolls(box)) box = box.parentElement;
    if (!box && e.getBoundingClientRect().right > width + 1)
      wrong(`${named(e)} ends at ${Math.round(e.getBoundingClientRect().right)} px`);
  }
}
async function run() {
  for (const width of widths) {
    const frame = document.body.appendChild(document.createElement("iframe"));
    frame.style = `width:${width}px;height:900px;border:0`;
    for (const page of pages) {
      await new Promise(done => { frame.onload = done; frame.src = page; });
      look(page, width, frame.contentWindow);
    }
  }
}
run().catch(error => found.push(`${error}`)).then(
  () => fetch("/found", {method: "POST", body: JSON.stringify(found)}));
</script></body>"""


class _Site(SimpleHTTPRequestHandler):
    """The site, a page that looks at all others, and where it says what it found."""

    def __init__(self, *given: Any, look: str, answer: list[str], **options: Any) -> None:
        self.look, self.answer = look, answer
        super().__init__(*given, **options)

    def do_GET(self) -> None:
        """Send a page of the site, or the one that looks."""
        if self.path != "/look":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.look.encode())

    def do_POST(self) -> None:
        """Keep what was found, and stop."""
        self.answer += json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        Thread(target=self.server.shutdown).start()

    def log_message(self, *given: Any) -> None:
        """Print nothing."""


def browser() -> str:
    """Return the path of a browser; empty where there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), "")


def problems(folder: Path, widths: tuple[int, ...] = WIDTHS) -> list[str]:
    """Return a sentence for each thing that is cut off, or makes a page wider than the screen."""
    pages = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.html"))
    look = _LOOK.replace("PAGES", json.dumps(pages)).replace("WIDTHS", json.dumps(widths))
    look = look.replace("LINE", str(LINE if max(widths) >= max(WIDTHS) else 0))
    found: list[str] = []
    handler = partial(_Site, look=look, answer=found, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        address = f"http://127.0.0.1:{server.server_port}/look"
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            options = (*_OPTIONS, "--window-size=1400,1000", f"--user-data-dir={profile}")
            started = subprocess.Popen(
                [browser(), *options, "--remote-debugging-port=0", address],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                server.serve_forever()
            finally:
                started.terminate()
                started.wait()
    return found


def results(folder: Path, word: str) -> list[str]:
    """Return the pages that the search of the site finds, opened as a file, without a server."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        address = f"{(folder / 'search.html').as_uri()}?q={quote_plus(word)}"
        options = (*_OPTIONS, f"--user-data-dir={profile}", "--virtual-time-budget=20000")
        done = subprocess.run(
            [browser(), *options, "--dump-dom", address], capture_output=True, text=True
        )
    listed = re.search(r'<ul [^>]*class="search">(.*)</ul>', done.stdout, re.DOTALL)
    found = re.findall(r"<a href=\"([^\"#]+)", listed[1]) if listed else []
    return list(dict.fromkeys(found))


def not_found(folder: Path, wanted: dict[str, str]) -> list[str]:
    """Return a sentence for each word whose page is not among the first that the search shows."""
    return [
        f"a search for {word!r} shows {first}, and not {page}"
        for word, page in wanted.items()
        if f"{page}.html" not in (first := results(folder, word)[:FIRST])
    ]


def main() -> None:
    """Print what is wrong and fail if anything is."""
    folder = Path(sys.argv[1]).resolve()
    if not browser():
        print("no chromium here: how the pages look was not checked")
        return
    found = problems(folder) + not_found(folder, finds())
    print("\n".join(found) or f"nothing is cut off at {WIDTHS} px, and the search finds")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()

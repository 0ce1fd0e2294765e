"""Rendered pages, read back by parsers that did not write them."""

from __future__ import annotations

import re

import html5lib
from markdown_it import MarkdownIt

SPACE = "{http://www.w3.org/1999/xhtml}"
HOSTILE = [
    "<script>alert(1)</script>",
    "a&b;&lt;&#60;",
    "100%_done",
    "a|b||c",
    "$x_1$ \\input{/etc/passwd} #1 ~ ^",
    "[link](http://evil.example) ![i](x) `code` *bold*",
    "[0, 1]",
    "* item",
    "\\\\[1em] & {}",
    "zażółć gęślą Δ 中文 😀 \u202eabc\u200b",
    'quote" \' style="x" onload=y',
    "-- --- ?` !`",
    "very_long_name_" * 30,
    "x" * 400,
]
ELEMENTS = """html head meta title style body main div h1 h2 h3 h4 p dl dt dd ul li
table caption thead tbody tfoot tr th td"""
ATTRIBUTES = {"lang", "charset", "name", "content", "class", "role", "scope", "tabindex"}


def squeezed(text):
    return re.sub(r"\s+", "", text)


def spaced(text):
    """What a page may show of a text: one space for any run of white or invisible characters."""
    hidden = r"[\s\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\x00-\x1f\x7f-\x9f]+"
    return re.sub(hidden, " ", text).strip().replace("\u2212", "-")


def page(html):
    """The parsed page or element; the strict parser raises at anything that is not valid."""
    parser = html5lib.HTMLParser(html5lib.getTreeBuilder("etree"), strict=True)
    if html.startswith("<!DOCTYPE"):
        return parser.parse(html)
    return parser.parseFragment(html)


def tables(tree):
    """Texts of all cells, by table and row."""
    return [
        [
            [spaced("".join(cell.itertext())) for cell in row if cell.tag[len(SPACE) :] in "thtd"]
            for row in table.iter(f"{SPACE}tr")
        ]
        for table in tree.iter(f"{SPACE}table")
    ]


def shown(tree):
    parents = {child: parent for parent in tree.iter() for child in parent}
    for node in list(tree.iter(f"{SPACE}style")):
        parents[node].remove(node)
    return spaced(" ".join(tree.itertext()))


def from_markdown(text):
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)
    return page(f"<div>{html}</div>")


def detexed(text):
    """LaTeX read back, as far as plain sentences go."""
    text = re.sub(r"\\allowbreak\{\}|\{\}", "", text)
    return squeezed(re.sub(r"\\([%&_#${}])", r"\1", text.replace("$-$", "-")))


def self_contained(html):
    tree = page(html)
    for node in tree.iter():
        assert node.tag.removeprefix(SPACE) in [*ELEMENTS.split(), "DOCUMENT_FRAGMENT"]
        assert set(node.attrib) <= ATTRIBUTES
    for style in re.findall(r"<style>(.*?)</style>", html, re.DOTALL):
        assert not re.search(r"url|import|@font|http|expression", style)
        rules = re.sub(r"@media[^{]*\{|\}\s*\}", "", style)
        for selector in re.findall(r"([^{}]+)\{", rules):
            parts = [part.strip() for part in selector.split(",")]
            own = all(part.startswith(".dpeffects") for part in parts)
            assert own or html.startswith("<!DOCTYPE"), selector
    return tree

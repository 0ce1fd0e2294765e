"""What is published agrees with itself: version, ranges, licences, workflows, links."""

from __future__ import annotations

import re
import tomllib
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dpeffects

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [c.rsplit(" ", 1)[-1] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def requirements(*extras):
    lines = [*PROJECT["dependencies"]] if not extras else []
    lines += [line for name in extras for line in PROJECT["optional-dependencies"][name]]
    found = [Requirement(line) for line in lines]
    return [one for one in found if one.name != "dpeffects"]


EVERY = [*requirements(), *requirements(*PROJECT["optional-dependencies"])]


def test_one_version():
    """Written down in dpeffects/__init__.py; the CHANGELOG and CITATION.cff follow."""
    newest = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", text("CHANGELOG.md"), re.MULTILINE)
    assert newest[1] == dpeffects.__version__
    citation = text("CITATION.cff")
    assert f"\nversion: {newest[1]}\n" in citation
    assert f"\ndate-released: {newest[2]}\n" in citation
    assert "version" in PROJECT["dynamic"]


def test_files_that_people_look_for():
    for name in ("LICENSE", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md", ".ci/run"):
        assert (ROOT / name).is_file(), name
    assert set(PROJECT["urls"]) >= {
        "Homepage",
        "Documentation",
        "Repository",
        "Issues",
        "Changelog",
    }


def test_lowest_versions_are_the_lower_ends_of_the_ranges():
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", text(".ci/lowest.txt"), re.MULTILINE))
    extras = re.search(r"^EXTRAS := (\S+)$", text("Makefile"), re.MULTILINE)[1].split(",")
    for one in [*requirements(), *requirements(*extras)]:
        assert one.name in pinned, f"{one} has no line in .ci/lowest.txt"
    for one in EVERY:
        lower = [spec.version for spec in one.specifier if spec.operator == ">="]
        if one.name in pinned and one.name != "cryptography":  # that of federation is higher
            low = f"{lower[0]}.0.0".split(".")[:3]
            assert pinned[one.name].split(".")[:3] == low, one


def test_the_page_of_licences_names_every_dependency():
    rows = re.findall(r"^\| ([\w.-]+) \| \S+ \| ([^|]+) \|", text("docs/licences.md"), re.MULTILINE)
    licences = dict(rows)
    assert {canonicalize_name(one.name) for one in EVERY} <= set(licences)
    assert all(words.strip() not in ("", "UNKNOWN") for words in licences.values())


def test_versions_of_python():
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    page = text("docs/versions.md")
    assert all(f"Python {version}" in page for version in PYTHONS)


def test_workflows_run_what_is_run_here():
    yaml = pytest.importorskip("yaml")
    flows = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
    }
    assert set(flows) == {"tests", "docs", "release"}
    jobs = flows["tests"]["jobs"]
    assert jobs["all"]["strategy"]["matrix"]["python"] == PYTHONS
    steps = [
        step
        for flow in flows.values()
        for job in flow["jobs"].values()
        for step in job.get("steps", [])
    ]
    runs = [step["run"] for step in steps if "run" in step]
    assert ".ci/run" in runs
    targets = re.findall(r"^([\w-]+):", text("Makefile"), re.MULTILINE)
    assert {run.split()[1] for run in runs if run.startswith("make ")} <= set(targets)
    assert all(re.search(r"@v\d", step["uses"]) for step in steps if "uses" in step)
    assert flows["release"]["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    hooks = yaml.safe_load(text(".pre-commit-config.yaml"))["repos"]
    assert [hook["id"] for hook in hooks[0]["hooks"]] == ["ruff-check", "ruff-format", "mypy"]


def test_links_on_the_page_of_the_package_lead_somewhere(wheel):
    """A relative link of the README would lead nowhere on a public index."""
    archive = ZipFile(wheel)
    name = next(name for name in archive.namelist() if name.endswith("METADATA"))
    page = message_from_bytes(archive.read(name))
    assert page["Version"] == dpeffects.__version__
    assert page["Description-Content-Type"].startswith("text/markdown")
    body = page.get_payload(decode=True).decode()
    links = re.findall(r'\]\(([^)\s]+)\)|<img [^>]*src="([^"]+)"', body)
    ours = re.compile(r"https://[\w.]*github\w*\.com/dpeffects/dpeffects/(?:blob/)?v[^/]+/([^#]+)")
    found = [one or two for one, two in links]
    assert all(link.startswith(("https://", "#", "mailto:")) for link in found), found
    inside = [match[1] for match in map(ours.match, found) if match]
    assert inside
    assert [path for path in inside if not (ROOT / path).exists()] == []

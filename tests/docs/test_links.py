"""Links between the repository's Markdown files, as one reads them without the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import site_links

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\((?!<?[a-z]+:)([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_to_a_file_and_heading(path: Path) -> None:
    for target in LINK.findall(FENCE.sub("", path.read_text(encoding="utf-8"))):
        name, _, anchor = target.partition("#")
        place = path.parent / name if name else path
        assert place.exists(), target
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place), target


PAGES = {"CHANGELOG.md": "changelog.md", "docs/a/b.md": "a/b.md", "G.md": "rest.md", "G.md#add": "adding.md"}


@pytest.mark.parametrize(
    ("source", "page", "target", "wanted"),
    [
        ("docs/a/b.md", "a/b.md", "../../CHANGELOG.md#x", "../changelog.md#x"),
        ("docs/a/b.md", "a/b.md", "b.md", "b.md"),
        ("CHANGELOG.md", "changelog.md", "docs/a/b.md", "a/b.md"),
        ("docs/c.md", "c.md", "../G.md#add", "adding.md#add"),
        ("docs/c.md", "c.md", "../G.md#other", "rest.md#other"),
        ("docs/c.md", "c.md", "../missing.md", "../missing.md"),
        ("docs/c.md", "c.md", "#here", "#here"),
        ("docs/c.md", "c.md", "https://example.org/CHANGELOG.md", "https://example.org/CHANGELOG.md"),
    ],
)
def test_links_lead_to_the_page_of_the_file(source: str, page: str, target: str, wanted: str) -> None:
    assert site_links.rewrite(f"a [b]({target}) c", source, page, PAGES) == f"a [b]({wanted}) c"


def test_fenced_code_is_left_alone() -> None:
    code = "```\n[b](../CHANGELOG.md) `seepage.audit`\n```\n"
    text = f"[b](../CHANGELOG.md)\n\n{code}\n[b](../CHANGELOG.md)\n"
    done = site_links.rewrite(text, "docs/c.md", "c.md", PAGES)
    assert done == f"[b](changelog.md)\n\n{code}\n[b](changelog.md)\n"
    assert site_links.to_reference(code, pytest.fail) == code


def test_names_link_to_where_they_are_defined_and_unknown_ones_are_told() -> None:
    unknown: list[str] = []
    text = "`seepage.assessment.measure`, `seepage.tabular`, `seepage.registry.attacks`, `seepage.nowhere`"
    done = site_links.to_reference(text, unknown.append)
    assert done == (
        "[`seepage.assessment.measure`][seepage.assessment.measuring.measure], [`seepage.tabular`][seepage.tabular], "
        "`seepage.registry.attacks`, `seepage.nowhere`"
    )
    assert unknown == ["seepage.nowhere"]


def test_sections_put_together_are_the_document() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    head, parts = site_links.sections(text)
    assert head + "".join(body for _, body in parts) == text
    assert next(title for title, _ in parts if title.startswith("Add ")) == "Add an attack"
    assert all(body.startswith(f"## {title}\n") for title, body in parts)


def test_a_heading_within_code_begins_no_section() -> None:
    assert site_links.sections("a\n```\n## no\n```\n## yes\n")[1] == [("yes", "## yes\n")]

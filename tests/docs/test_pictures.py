"""The pictures of README and documentation say what the program says today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pictures

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_who_sends_what_is_in_the_words_of_the_program() -> None:
    drawn = " ".join(pictures.words_of(pictures.FLOWS.read_text(encoding="utf-8")))
    described = pictures.abouts()
    for name, about in described.items():
        assert " ".join([name, *pictures.flow_words(about)[:1]]) in drawn
        assert all(words in drawn for words in pictures.flow_words(about))
    assert pictures.FLOWS.read_text(encoding="utf-8") == pictures.flows(described)


def test_badges_say_what_the_metadata_says() -> None:
    for name, halves in pictures.badges().items():
        path = pictures.ASSETS / f"{name}.svg"
        assert pictures.words_of(path.read_text(encoding="utf-8")) == list(halves)
        assert f"docs/assets/{name}.svg" in README


def test_the_readme_is_short_and_its_pictures_fetch_nothing() -> None:
    assert len(README.split()) < 700
    assert "federated learning" in README.split("\n\n")[2].split(".")[0]
    for path in re.findall(r"\((docs/assets/[\w.]+)\)", README):
        text = (ROOT / path).read_text(encoding="utf-8")
        assert set(re.findall(r"https?://[^\s\"<]+", text)) <= {"http://www.w3.org/2000/svg"}, path


@pytest.mark.slow
def test_the_end_of_an_audit_has_the_words_of_the_program(tmp_path: Path) -> None:
    def words(svg: str) -> list[str]:
        lines = " ".join(pictures.words_of(svg))
        return sorted(set(re.findall(r"[A-Za-z]{3,}", lines)))

    picture = pictures.SCREEN.read_text(encoding="utf-8")
    assert words(picture) == words(pictures.screen(pictures.audited(tmp_path / "adult_audit")))

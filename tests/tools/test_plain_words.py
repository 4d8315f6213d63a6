"""The lint of docstrings and class names."""

from __future__ import annotations

from pathlib import Path

import pytest

import plain_words

ROOT = Path(__file__).resolve().parents[2]

FUNCTION = '''"""A module."""

def fit(steps, rate):
    """Fit a model.

    More about it, of which nothing is refused:
    as this line.

    Args:
        steps: {steps}
        rate: learning rate, that of Adam
            as in the paper.

    Returns:
        {returns}
    """
'''

CLASS = '''class Fit:
    """A fit.

    Attributes:
        steps (int): {steps}
    """
'''


def refused(source: str) -> list[str]:
    return [str(refusal) for refusal in plain_words.refused_descriptions(source, Path("src/fit.py"))]


@pytest.mark.parametrize(
    "opening",
    ["of Adam.", "that of Adam.", "whose number counts.", "as many as needed.", "how many.", "what it takes."],
)
def test_descriptions_that_lean_on_the_name_are_refused(opening: str) -> None:
    word = "what it" if opening.startswith("what it") else opening.split()[0]
    [argument] = refused(FUNCTION.format(steps=opening, returns="The model."))
    assert argument.startswith(f"src/fit.py:10: description of 'steps' begins with '{word}': write a noun phrase")
    [result] = refused(FUNCTION.format(steps="number of steps.", returns=opening.capitalize()))
    assert result.startswith(f"src/fit.py:15: description of 'Returns' begins with '{word.capitalize()}'")
    [attribute] = refused(CLASS.format(steps=opening))
    assert attribute.startswith(f"src/fit.py:5: description of 'steps' begins with '{word}'")


def test_a_description_on_the_next_line_and_one_for_two_names_are_read() -> None:
    assert len(refused(CLASS.format(steps="\n            of Adam."))) == 1
    assert len(refused('def fit(a, *b): """Fit.\n\n    Args:\n        a, *b: of Adam.\n    """')) == 1


@pytest.mark.parametrize(
    "good", ["number of steps.", "ofset of steps.", "assigned steps.", "what is fitted.", "however."]
)
def test_noun_phrases_pass(good: str) -> None:
    assert not refused(FUNCTION.format(steps=good, returns=good.capitalize()))
    assert not refused(CLASS.format(steps=good))


@pytest.mark.parametrize("word", ["at", "here", "own", "seen", "some", "way"])
def test_words_that_say_nothing_as_a_whole_name_are_refused(word: str) -> None:
    def names(source: str, path: str = "src/seepage/models/fit.py") -> list[str]:
        return [str(refusal) for refusal in plain_words.refused_names(source, Path(path))]

    refused = f"src/seepage/models/fit.py:1: name {word!r} does not say"
    for source in (f"{word} = rows", f"[0 for {word} in rows]", f"def {word}(): ...", f"lambda {word}: 0"):
        [line] = names(source)
        assert line.startswith(refused)
    assert len(names(f"def _fit({word}): ...")) == len(names(f"def _{word}(): ...")) == 1
    assert len(names(f"def fit({word}): ...")) == (word != "own")
    # A part of a name, a use, and an attribute, which stands beside its owner.
    assert not names(f"{word}_rows = view.{word}")
    assert not names(f"class View:\n    {word}: int\n    def __init__(self): self.{word} = 0")
    assert not names(f"{word} = rows", "src/seepage/kernel/rows.py")


def test_class_names_that_occur_twice_are_refused_at_each_place() -> None:
    sources = [
        (Path("src/a.py"), "class Prior: ...\nclass Other: ..."),
        (Path("src/b.py"), "def made():\n    class Prior: ..."),
    ]
    assert [str(refusal) for refusal in plain_words.repeated_classes(sources)] == [
        "src/a.py:1: class 'Prior' is also at src/b.py:2: give each class a name of its own",
        "src/b.py:2: class 'Prior' is also at src/a.py:1: give each class a name of its own",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "def told(): ...",
        "class Told: ...",
        "def fit(told): ...",
        "told = 1",
        "self.told = 1",
        "for _, who_told in []: ...",
        "for one in []: ...",
        "kept_rows = 1",
    ],
)
def test_names_that_do_not_say_what_a_thing_is_are_refused(source: str) -> None:
    [refusal] = plain_words.refused_names(source, Path("src/fit.py"))
    assert refusal.line == 1
    assert "does not say what the thing is" in str(refusal)
    # Terms of the field have such words too.
    assert not list(plain_words.refused_names("held_out = one_hot = 1", Path("src/fit.py")))
    # As a part of another word, and where a name is only read, it is none.
    assert not list(plain_words.refused_names(f"retold = print(told.told, told=2)  # {source}", Path("src/fit.py")))


def test_names_are_not_read_where_they_are_exempt(tmp_path: Path) -> None:
    root = project(tmp_path, '"pkg.old"')
    (root / "src" / "pkg" / "new.py").write_text("told = 1")
    assert [refusal.line for refusal in plain_words.check(root)] == [1]
    (root / "pyproject.toml").write_text('[tool.plain-words]\nexempt = ["pkg.old"]\nexempt-names = ["pkg"]\n')
    assert not plain_words.check(root)


def project(folder: Path, exempt: str) -> Path:
    (folder / "src" / "pkg" / "old").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(f"[tool.plain-words]\nexempt = [{exempt}]\n")
    for place in ("new.py", "old/fit.py"):
        (folder / "src" / "pkg" / place).write_text(CLASS.format(steps="of Adam."))
    return folder


def test_exempt_packages_and_modules_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = project(tmp_path, '"pkg.old"')
    assert plain_words.main(root) == 1
    assert capsys.readouterr().out.count("\n") == 1
    (root / "pyproject.toml").write_text('[tool.plain-words]\nexempt = ["pkg.old", "pkg.new"]\n')
    assert plain_words.main(root) == 0
    (root / "pyproject.toml").write_text("")
    assert plain_words.main(root) == 1
    assert capsys.readouterr().out.count("is also at") == 2


def test_an_exempt_name_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"exempts 'pkg.gone', which is neither a package nor a module"):
        plain_words.check(project(tmp_path, '"pkg.gone"'))


@pytest.mark.slow  # As does `make lint`.
def test_this_package_passes() -> None:
    assert not [str(refusal) for refusal in plain_words.check(ROOT)]

"""``seepage new``: a plug-in of one file that runs, with its test."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import typer

from seepage.cli.app import app
from seepage.cli.exits import shown_path
from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.text import clean

Starter = Literal["attack", "defense", "metric", "model"]
_NEXT = {
    "attack": "seepage audit --dataset german --batch-size 1 --labels true --attack {file}:{name} --victims 3",
    "defense": "seepage audit --dataset german --batch-size 1 --defense none --defense {file}:{name} --victims 3",
    "metric": ("seepage audit --dataset german --batch-size 1 --metric accuracy --metric {file}:{name} --victims 3"),
    "model": "seepage audit --dataset german --batch-size 1 --model {file}:{name} --victims 3",
}


@app.command()
def new(
    kind: Annotated[Starter, typer.Argument(help="What to begin: attack, defense, metric or model.")],
    file: Annotated[Path, typer.Argument(help="File to write, such as mine.py; its test goes beside it.")],
    name: Annotated[str | None, typer.Option(help="Name of the class.", show_default="from the file's name")] = None,
) -> None:
    """Write an attack, a defense, a metric or a network of your own in one file, which runs as it is, and its test.

    [bold]Example[/bold]

        seepage new attack mine.py

        seepage audit --dataset german --batch-size 1 --labels true --attack mine.py:Mine --victims 3
    """
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise BadInputError(f"the file {str(file)!r} is to be imported; name it like a module, such as mine.py.")
    name = name or "".join(word.capitalize() for word in file.stem.split("_"))
    if not name.isidentifier():
        raise BadInputError(f"{name!r} is no name of a class; give letters, digits and underscores, such as Mine.")
    test = file.with_name(f"test_{file.name}")
    for place in (file, test):
        if place.exists():
            raise BadInputError(f"{str(place)!r} exists already; give another name, or remove it.")
    texts = files("seepage.cli") / "starters"
    words = {"name": name, "file": str(file), "module": file.stem}
    for place, starter in ((file, f"{kind}.py.txt"), (test, f"{kind}_test.py.txt")):
        write_whole(place, (texts / starter).read_text(encoding="utf-8").format(**words), private=False)
    print(f"Written: {shown_path(file)} and {shown_path(test)}. Run them:")
    print(f"  {clean(_NEXT[kind].format(**words), 4000)}")
    print(f"  python -m pytest {shown_path(test)}")

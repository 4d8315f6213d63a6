"""The types of options, and their reference page, are what the fields of the specs say."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import pytest

import seepage
import site_options
import typed_options
from seepage.settings import typed
from seepage.settings.catalogue import settings
from seepage.settings.option import PANELS, fields_of


def test_the_types_are_up_to_date() -> None:
    assert typed_options.PLACE.read_text(encoding="utf-8") == typed_options.render()
    text = typed_options.FUNCTIONS.read_text(encoding="utf-8")
    assert text == typed_options.render_functions(text)


@pytest.mark.parametrize("setting", list(settings()))
def test_notebooks_complete_and_explain_the_options_of_each_setting(setting: str) -> None:
    function = getattr(seepage, "audit" if setting == "horizontal" else f"audit_{setting}")
    options = getattr(typed, f"{setting.capitalize()}Options").__annotations__
    taken = inspect.signature(function).parameters
    assert set(options) <= set(taken)
    assert ("options" in taken) == (setting == "horizontal")
    assert taken["seed"].default == 0 == fields_of(settings()[setting].spec)["seed"].default
    assert all(f"        {name}: " in (function.__doc__ or "") for name in options)


@pytest.mark.parametrize("setting", ["horizontal", "split", "vertical", "pooled"])
def test_every_field_has_a_type(setting: str) -> None:
    options = getattr(typed, f"{setting.capitalize()}Options")
    assert inspect.getdoc(options)
    fields = [name for name in fields_of(settings()[setting].spec) if name not in typed_options.ARGUMENTS]
    assert sorted(get_type_hints(options)) == sorted(fields)


def test_every_field_is_on_the_reference_page() -> None:
    page = site_options.options()
    for setting in settings().values():
        for one in fields_of(setting.spec).values():
            assert one.option.panel in PANELS
            assert one.option.help.endswith(".")
            assert f"| `{one.key}`" in page
            assert one.option.help.replace("|", "\\|") in page

"""What is said where the packages of an extra are not installed."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

import pytest

from seepage.cli.options import ClusterOptions
from seepage.errors import BadInputError
from seepage.packages import MissingExtraError, extra


def without(patch: pytest.MonkeyPatch, module: str, *packages: str) -> None:
    """Have packages, and the module that imports them, as if they were not there."""
    for name in [*sys.modules, *packages]:
        if name.partition(".")[0] in packages:
            patch.setitem(sys.modules, name, None)
    patch.delitem(sys.modules, module, raising=False)


@pytest.mark.parametrize(
    ("name", "said", "package"),
    [("flower", "Flower", "flwr"), ("nvflare", "NVFlare", "nvflare"), ("dask", "Dask", "distributed")],
)
def test_a_missing_extra_is_named_in_a_sentence(
    name: str, said: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, f"seepage.integrations.{name}", package)
    with pytest.raises(MissingExtraError) as found:
        import_module(f"seepage.integrations.{name}")
    assert str(found.value) == f"{said} is not installed; pip install 'seepage[{name}]'."
    # Programs that try an import expect this one.
    assert isinstance(found.value, ImportError)


def test_the_command_names_the_extra_too(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "seepage.integrations.dask", "distributed")
    with pytest.raises(BadInputError, match=r"pip install 'seepage\[dask\]'"):
        ClusterOptions("tls://127.0.0.1:8786").connect()


def test_another_version_without_a_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    old = ModuleType("flwr")
    monkeypatch.setitem(sys.modules, "flwr", old)
    with (
        pytest.raises(MissingExtraError, match=r"Flower [0-9.]+ cannot be used \(cannot import name 'nothing'"),
        extra("flower", "Flower", "flwr"),
    ):
        from flwr import nothing  # noqa: F401, PLC0415  # pyright: ignore


def test_what_else_is_missing_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ModuleNotFoundError), extra("flower", "Flower", "flwr"):
        import_module("safetensors")

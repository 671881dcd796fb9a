"""The pictures of the documents are those that their script draws, and say in words what they show."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_pictures", PICTURES / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_what_its_script_draws(script: ModuleType) -> None:
    assert {path.stem for path in PICTURES.glob("*.svg")} == set(script.PICTURES)
    for name, draw in script.PICTURES.items():
        kept = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
        assert kept == draw().svg(), f"{name}.svg is out of date: python docs/pictures/make.py"
        assert len(re.findall(r"<title[^>]*>[^<]+</title><desc[^>]*>[^<]{40,}</desc>", kept)) == 1


def test_the_import_order_is_that_of_the_house(script: ModuleType) -> None:
    design = (PICTURES.parent / "design.md").read_text(encoding="utf-8")
    assert " < ".join(name for name, _ in script.ROOMS) in design

"""A small finished study that tests look at, and never change."""

from pathlib import Path

import pytest
from small_study import small_plan

from fedmerit import Study, compare


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return compare(small_plan(), tmp_path_factory.mktemp("studies") / "small", jobs=2)


@pytest.fixture(scope="session")
def study_folder(study: Study) -> Path:
    return study.folder

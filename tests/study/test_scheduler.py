"""The scheduler: who gets how many cores, as runs turn out to be long or short."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_study import small_plan

from fedmerit.config.schema import Config
from fedmerit.study import scheduler
from fedmerit.study.scheduler import Step, run_all
from fedmerit.study.study_folder import Member, members
from fedmerit.study.worker import Ended


class Instant:
    """Workers whose runs end when they are asked for."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self._under_way: list[tuple[Member, int]] = []

    @property
    def busy_cores(self) -> int:
        return sum(cores for _, cores in self._under_way)

    def start(self, member: Member, config: Config, cores: int, log: object = ()) -> None:
        assert config.run.workers == cores
        self.given.append(cores)
        self._under_way.append((member, cores))

    def steps(self) -> list[Step]:
        done, self._under_way = self._under_way, []
        return [Step(member, Ended()) for member, _ in done]


@pytest.mark.parametrize(("short", "last"), [(10.0, 1), (0.0, 2)])
def test_the_last_run_gets_all_cores_only_where_runs_are_long(
    short: float, last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "SHORT", short)
    workers, runs = Instant(), members(small_plan(seeds=[1, 2, 3]), tmp_path)[:5]
    assert run_all(workers, runs, 2, None) == {}
    assert workers.given == [1, 1, 1, 1, last]

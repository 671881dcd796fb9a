"""Options of partitions: flat keys of [task], each refused where it has no effect."""

from typing import Any, get_args

import pytest

from fedmerit import UserError
from fedmerit.config.schema import TaskConfig, check_options, make_config
from fedmerit.config.task import OF_KINDS, OPTIONS, PARTITIONS, Made

GIVEN: dict[str, Any] = {
    "alpha": 0.5,
    "groups": [[0], [1]],
    "size": 9,
    "attribute": "sex",
}
"""Values that are good where the key is; several are the defaults, which must be refused like any other."""

PAIRS = [(partition, key) for partition in PARTITIONS for key in OPTIONS]


def test_the_tables_are_complete():
    assert set(GIVEN) == set(OPTIONS)
    assert {*get_args(Made), "natural", "attribute", "attribute-label"} == set(PARTITIONS)
    assert TaskConfig.model_fields.keys() >= set(OPTIONS)


@pytest.mark.parametrize(("partition", "key"), [(p, k) for p, k in PAIRS if k not in PARTITIONS[p]])
def test_a_key_of_another_partition_is_refused_by_name(partition: str, key: str):
    others = [name for name, keys in PARTITIONS.items() if key in keys]
    with pytest.raises(UserError) as refused:
        make_config({"task": {"partition": partition, key: GIVEN[key]}})
    with pytest.raises(UserError) as settled:
        check_options(TaskConfig.model_validate({key: GIVEN[key]}).model_copy(update={"partition": partition}))
    assert str(refused.value) == str(settled.value)
    for part in (partition, key, *others, *(["task.kinds"] if key in OF_KINDS else PARTITIONS[partition])):
        assert part in str(refused.value)


@pytest.mark.parametrize(("partition", "key"), [(p, k) for p, k in PAIRS if k in PARTITIONS[p]])
def test_a_key_of_its_own_is_taken(partition: str, key: str):
    check_options(make_config({"task": {"partition": partition, key: GIVEN[key]}}).task)


@pytest.mark.parametrize("partition", ["default", *PARTITIONS])
def test_kinds_of_clients_take_an_attribute_in_any_partition(partition: str):
    task = {"partition": partition, "attribute": "race", "kinds": {"poisoned": 0.5}}
    assert make_config({"task": task}).task.attribute == "race"


def test_default_waits_for_the_task():
    task = make_config({"task": {"alpha": 0.5}}).task
    check_options(task.model_copy(update={"partition": "dirichlet"}))
    with pytest.raises(
        UserError, match=r"partition iid does not use 'alpha' \(it uses no options\); remove it, or use"
    ):
        check_options(task.model_copy(update={"partition": "iid"}))

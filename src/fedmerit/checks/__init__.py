"""Laws that any weighting of clients should keep, checked on recipes and on anybody's Flower strategies."""

from fedmerit.checks.laws import LAWS as LAWS
from fedmerit.checks.laws import LawResult as LawResult
from fedmerit.checks.laws import check_weighting as check_weighting

__all__ = ["LAWS", "LawResult", "check_weighting"]

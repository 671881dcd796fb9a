"""Laws that any weighting of clients should keep, checked on recipes and on anybody's Flower strategies."""

from fedmerit.checks.laws import LAWS, LawResult, check_weighting

__all__ = ["LAWS", "LawResult", "check_weighting"]

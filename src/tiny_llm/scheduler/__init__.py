"""Which tokens of which requests each step computes. Pure Python, without MLX."""

from .counters import Counters
from .plan import Plan, Row
from .request import RequestState, Status
from .scheduler import Scheduler

__all__ = ["Counters", "Plan", "RequestState", "Row", "Scheduler", "Status"]

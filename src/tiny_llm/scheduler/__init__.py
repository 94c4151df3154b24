"""Which tokens of which requests each step computes. Pure Python, without MLX."""

from .plan import Counters, Plan, Row
from .request import RequestState, Status
from .scheduler import Scheduler

__all__ = ["Counters", "Plan", "RequestState", "Row", "Scheduler", "Status"]

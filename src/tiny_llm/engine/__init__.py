"""Many requests at once on one model: each step is one packed batch, and one thread owns all arrays."""

from .engine import Engine
from .events import Event, EventReason
from .handle import Handle
from .request import EngineRequest
from .statistics import EngineStatistics, Timings

__all__ = ["Engine", "EngineRequest", "EngineStatistics", "Event", "EventReason", "Handle", "Timings"]

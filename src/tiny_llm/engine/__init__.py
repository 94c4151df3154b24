"""Many requests at once on one model: each step is one packed batch, and one thread owns all arrays."""

from .engine import Engine
from .request import EngineRequest, Event, EventReason, Handle, Timings
from .statistics import EngineStatistics

__all__ = ["Engine", "EngineRequest", "EngineStatistics", "Event", "EventReason", "Handle", "Timings"]

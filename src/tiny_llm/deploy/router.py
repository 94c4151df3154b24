"""Ray Serve's router of requests, with our rule; and its rule for the number of replicas."""

from typing import Any

from ray.serve.config import AutoscalingContext
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from .routing import LoadBound, Running, wanted_replicas

QUEUE = "queue"  # the requests of a replica's engines, running or waiting


class PrefixRouter(RequestRouter):
    """A call has the argument `prefix`, or `only`: the name of the replica that shall answer it."""

    def initialize_state(self, **bound: Any) -> None:
        self._bound = LoadBound(**bound)
        Running.names = self._names

    def _names(self) -> list[str]:
        return [replica.unique_id for replica in list(self.curr_replicas)]

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Each in a list of its own: Ray takes the least loaded one of a list, or goes to the next."""
        prefix = only = None
        if pending_request is not None:
            prefix, only = (pending_request.kwargs.get(name) for name in ("prefix", "only"))
            pending_request.routing_context.should_backoff = True  # Ray would try again without a pause
        replicas = {
            name: replica
            for replica in candidate_replicas
            if only in (None, name := replica.replica_id.unique_id)
        }
        lengths = self.replica_queue_len_cache
        loads = {name: lengths.get(replica.replica_id) or 0 for name, replica in replicas.items()}
        return [[replicas[name]] for name in self._bound.order(prefix, loads)]


def by_queue(context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
    """As many replicas as give each `target_ongoing_requests` of its engines' queues and of Ray's own."""
    queues = (context.aggregated_metrics or {}).get(QUEUE, {})
    requests = sum(queues.values()) + context.total_queued_requests
    return wanted_replicas(requests, context.config.target_ongoing_requests), {}

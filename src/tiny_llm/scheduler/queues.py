"""The requests in order of arrival: the running ones are older than all that wait."""

from bisect import insort

from .request import RequestState, Status


class Queues:
    """One queue, split in two: `running` requests have pages, `waiting` ones have none."""

    def __init__(self) -> None:
        self.running: list[RequestState] = []
        self.waiting: list[RequestState] = []
        self._arrivals = 0

    @property
    def places(self) -> int:
        """Running requests, where one counts for each of its answers before the fork."""
        return sum(state.choices for state in self.running)

    def add(self, state: RequestState) -> None:
        """A new request waits behind all others."""
        state.arrival = self._arrivals
        self._arrivals += 1
        state.status = Status.WAITING
        self.waiting.append(state)

    def start_next(self) -> None:
        """The oldest waiting request runs."""
        state = self.waiting.pop(0)
        state.status = Status.RUNNING
        self.running.append(state)

    def put_back(self) -> RequestState:
        """The newest running request waits, before all others that wait."""
        state = self.running.pop()
        state.status = Status.WAITING
        self.waiting.insert(0, state)
        return state

    def fork(self, states: list[RequestState]) -> None:
        """More answers to a prompt that runs: they run, too."""
        for state in states:
            insort(self.running, state, key=lambda each: each.order)

    def remove(self, state: RequestState) -> None:
        """A request that finishes."""
        (self.running if state.status is Status.RUNNING else self.waiting).remove(state)

    def check(self) -> None:
        """Raise AssertionError unless the order is that of arrival, and only running requests have pages."""
        everything = [*self.running, *self.waiting]
        orders = [state.order for state in everything]
        assert orders == sorted(set(orders)), f"the requests are not in their order: {orders}"
        assert {state.status for state in self.running} <= {Status.RUNNING}
        assert {state.status for state in self.waiting} <= {Status.WAITING}
        assert [state.id for state in self.waiting if state.pages] == [], "a waiting request has pages"

"""Counts of requests, as text that Prometheus reads."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import DefaultDict, Dict, Iterable, List, Mapping, Tuple

from elmo_plugin.serving.batcher import Batcher

# Upper bounds of the histogram of durations.
SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Metrics:
    """
    Counts requests by route and status. Only routes of the server are counted by name, so that requests
    cannot add names.
    """

    def __init__(self) -> None:
        self.num_under_way = 0
        self._num_requests: Counter[Tuple[str, int]] = Counter()
        self._seconds: DefaultDict[str, float] = defaultdict(float)
        self._num_within: Counter[Tuple[str, float]] = Counter()

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._num_requests[route, status] += 1
        self._seconds[route] += seconds
        for bound in SECONDS:
            self._num_within[route, bound] += seconds <= bound

    def text(self, batchers: Mapping[str, Batcher]) -> str:
        """Return all counts, and those of the batchers by their names."""
        lines = _family(
            "elmo_requests_total",
            "counter",
            "Answered requests.",
            (
                ({"route": route, "status": str(status)}, count)
                for (route, status), count in self._num_requests.items()
            ),
        )
        lines += _family(
            "elmo_requests_under_way",
            "gauge",
            "Requests that are not answered yet.",
            [({}, self.num_under_way)],
        )
        lines += _head("elmo_request_seconds", "histogram", "Time until a request was answered.")
        for route, seconds in self._seconds.items():
            total = sum(count for (name, _), count in self._num_requests.items() if name == route)
            within = [(str(bound), self._num_within[route, bound]) for bound in SECONDS]
            for bound, count in [*within, ("+Inf", total)]:
                lines.append(
                    _sample("elmo_request_seconds_bucket", {"route": route, "le": bound}, count)
                )
            lines.append(_sample("elmo_request_seconds_sum", {"route": route}, seconds))
            lines.append(_sample("elmo_request_seconds_count", {"route": route}, total))
        for name, kind, about, attribute in (
            ("elmo_batches_total", "counter", "Batches that a model answered.", "num_batches"),
            ("elmo_batched_requests_total", "counter", "Requests in them.", "num_answered"),
            ("elmo_waiting_requests", "gauge", "Requests in the queue of a model.", "num_waiting"),
        ):
            lines += _family(
                name,
                kind,
                about,
                (
                    ({"model": model}, getattr(batcher, attribute))
                    for model, batcher in batchers.items()
                ),
            )
        memory = _resident_bytes()
        if memory:
            lines += _family(
                "process_resident_memory_bytes", "gauge", "Memory of the process.", [({}, memory)]
            )
        return "".join(f"{line}\n" for line in lines)


def _family(
    name: str, kind: str, about: str, samples: Iterable[Tuple[Dict[str, str], float]]
) -> List[str]:
    return [*_head(name, kind, about), *(_sample(name, labels, value) for labels, value in samples)]


def _head(name: str, kind: str, about: str) -> List[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _sample(name: str, labels: Dict[str, str], value: float) -> str:
    # Routes and names of models need no escapes.
    inner = ",".join(f'{key}="{label}"' for key, label in labels.items())
    return f"{name}{{{inner}}} {value}" if inner else f"{name} {value}"


def _resident_bytes() -> int:
    """Return the memory of the process; 0 where the system does not say it, as on macOS."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0

"""
Requests per second of `elmo serve`: many clients at once, beside one that sends one after the other.

What is compared, each with a server of its own:
  one by one        a client, which sends a sentence when it has the answer to the one before
  together          --clients of them at the same time; the server predicts in batches what arrives together
  without batches   the same clients, and a server with --max-batch 1

What the table shows:
  requests/s        answered requests divided by the seconds of the measurement
  median, 99 % ms   time from a request to its answer
  errors            answers that are no predictions, and broken connections
  per batch         mean number of requests that the model predicted together
  MB before, after  memory of the server's process when it was warm, and at the end
  largest MB        the most of it, looked at each second

Clients are in the process of this script, on the same machine, and take processor time too. For numbers that
mean something nothing else may run. The table is in Markdown; progress goes to stderr.

    python benchmarks/serve_load.py --text sentences.txt
    python benchmarks/serve_load.py --text sentences.txt --archive runs/ner/model.tar.gz --seconds 10
"""

import argparse
import asyncio
import itertools
import json
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import pandas
from measurement import markdown

from elmo_plugin.arguments import add_options, option, options_from
from elmo_plugin.report.tables import check_option

WARM_UP_REQUESTS = 200
SECONDS_TO_START = 120
ROWS = {"one by one": 1, "together": None, "without batches": None}


@dataclass(frozen=True)
class Options:
    """What is measured."""

    text: str = option("UTF-8 text, one sentence on each line", metavar="FILE")
    archive: str = option("the task model", "elmo_ner_mini", metavar="ARCHIVE")
    key: str = option("of the input, which has the sentence", "sentence")
    clients: int = option("at the same time", 100, metavar="N")
    seconds: float = option("of each measurement", 60.0, metavar="N")

    def __post_init__(self) -> None:
        check_option("--clients", self.clients, self.clients > 0, "at least 1")
        check_option("--seconds", self.seconds, self.seconds > 0, "a positive number")


@dataclass
class Counts:
    """What the clients of a measurement have seen."""

    milliseconds: List[float] = field(default_factory=list)
    errors: List[str] = field(default_factory=list)
    largest_memory: float = 0.0


class Client:
    """One connection, which stays open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: Optional[Tuple[asyncio.StreamReader, asyncio.StreamWriter]] = None

    async def request(self, method: str, path: str, body: bytes = b"") -> Tuple[int, bytes]:
        """Return status and body of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        answer_head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = re.search(r"content-length: (\d+)", answer_head, re.IGNORECASE)
        assert length, answer_head
        return int(answer_head.split(" ", 2)[1]), await reader.readexactly(int(length[1]))

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def main(words: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, Options)
    options = options_from(Options, parser.parse_args(words))
    lines = Path(options.text).read_text(encoding="utf-8").splitlines()
    bodies = [json.dumps({options.key: line}).encode() for line in lines if line.strip()]
    check_option("--text", f"no sentence in {options.text}", bool(bodies), "at least one")
    rows = []
    for name, num_clients in ROWS.items():
        print(f"{name} ...", file=sys.stderr)
        arguments = ["--max-batch", "1"] if name == "without batches" else []
        with server(options.archive, *arguments) as port:
            num = num_clients or options.clients
            rows.append({"": name, **asyncio.run(measured(port, bodies, num, options.seconds))})
    print(markdown(pandas.DataFrame(rows)))


@contextmanager
def server(archive: str, *arguments: str) -> Iterator[int]:
    """Start a server with this model on a free port; stop it at the end."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "elmo_plugin", "serve", f"model={archive}"),
            *("--port", "0", "--options-file", "none", *arguments),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = re.search(r":(\d+)/", line)
        assert port, f"the server did not start: {line}"
        yield int(port[1])
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_TO_START) == 0
    finally:
        process.kill()
        process.wait()


async def measured(
    port: int, bodies: Sequence[bytes], num_clients: int, seconds: float
) -> Dict[str, Any]:
    """Return a row of the table."""
    client = Client(port)
    for body in itertools.islice(itertools.cycle(bodies), WARM_UP_REQUESTS):
        await client.request("POST", "/api/models/model/predict", body)
    before = await metrics(client)
    client.close()  # the server would close it after some seconds
    counts = Counts()
    start = time.perf_counter()
    end = start + seconds
    # Each client starts at another sentence.
    clients = [
        client_loop(port, bodies, 7919 * number, end, counts) for number in range(num_clients)
    ]
    watch = asyncio.create_task(watch_memory(port, counts))
    await asyncio.gather(*clients)
    elapsed = time.perf_counter() - start
    watch.cancel()
    with suppress(asyncio.CancelledError):
        await watch
    after = await metrics(client)
    client.close()
    for error in sorted(set(counts.errors)):
        print(f"{counts.errors.count(error)} times: {error}", file=sys.stderr)
    batches = after["elmo_batches_total"] - before["elmo_batches_total"]
    batched = after["elmo_batched_requests_total"] - before["elmo_batched_requests_total"]
    times = pandas.Series(counts.milliseconds)
    return {
        "requests/s": round(len(times) / elapsed, 1),
        "median ms": round(times.median(), 1),
        "99 % ms": round(times.quantile(0.99), 1),
        "errors": len(counts.errors),
        "per batch": round(batched / batches, 1),
        "MB before": round(before["process_resident_memory_bytes"] / 1e6),
        "MB after": round(after["process_resident_memory_bytes"] / 1e6),
        "largest MB": round(counts.largest_memory / 1e6),
    }


async def client_loop(
    port: int, bodies: Sequence[bytes], first: int, end: float, counts: Counts
) -> None:
    """Send sentences one after the other until the end."""
    client = Client(port)
    for number in itertools.count(first):
        start = time.perf_counter()
        if start >= end:
            break
        try:
            body = bodies[number % len(bodies)]
            status, answer = await client.request("POST", "/api/models/model/predict", body)
        except (OSError, asyncio.IncompleteReadError) as error:
            counts.errors.append(repr(error))
            client.close()
            continue
        if status == 200:
            counts.milliseconds.append(1000 * (time.perf_counter() - start))
        else:
            counts.errors.append(answer.decode())
    client.close()


async def watch_memory(port: int, counts: Counts) -> None:
    client = Client(port)
    try:
        while True:
            memory = (await metrics(client))["process_resident_memory_bytes"]
            counts.largest_memory = max(counts.largest_memory, memory)
            await asyncio.sleep(1)
    finally:
        client.close()


async def metrics(client: Client) -> Dict[str, float]:
    """Return the metrics of the server by their names, without labels: one model is served."""
    status, text = await client.request("GET", "/metrics")
    assert status == 200, text
    samples = re.findall(r"^(\w+)(?:{.*})? (\S+)$", text.decode(), re.MULTILINE)
    return {name: float(value) for name, value in samples}


if __name__ == "__main__":
    main()

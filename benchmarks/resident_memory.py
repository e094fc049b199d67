"""Memory of this process, and models of a given size, for the benchmarks of memory. Linux only."""

import threading

import torch


def status_bytes(field: str) -> int:
    """A size in /proc/self/status."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no line '{field}'")


def resident_bytes() -> int:
    """Anonymous memory: pages of a written file in the page cache do not count."""
    return status_bytes("RssAnon")


class Peak:
    """Samples the memory in a thread while its block runs.

    Attributes:
        before: the memory at the start of the block.
        highest: the largest sample.
    """

    def __init__(self, seconds: float = 0.002):
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> "Peak":
        self.before = self.highest = resident_bytes()
        self._thread.start()
        return self

    def _sample(self) -> None:
        while not self._stopped.wait(self._seconds):
            self.highest = max(self.highest, resident_bytes())

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()
        self.highest = max(self.highest, resident_bytes())


class Stack(torch.nn.Module):
    """Square linear layers whose weights take the given number of bytes together."""

    def __init__(self, weight_bytes: int, width: int):
        super().__init__()
        count = max(1, round(weight_bytes / (width * width * 4)))
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x

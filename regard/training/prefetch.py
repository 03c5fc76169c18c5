"""Endless batches, prepared by a background thread while the device computes."""

from collections.abc import Iterator
from dataclasses import dataclass
from queue import Full, Queue
from threading import Event, Thread

import torch

from regard.data.batches import Batch, Batches

QUEUE_LENGTH = 4
"""Number of batches prepared ahead of time."""


@dataclass(frozen=True)
class PrefetchedBatch:
    """A batch, and the position in the data after it."""

    batch: Batch
    epoch: int
    next_batch: int
    """Index of the next batch within the epoch."""
    epoch_length: int
    """Number of batches in this epoch."""


class BatchPrefetcher:
    """Batches from a given position on. Use it as a context manager, so that its thread ends."""

    def __init__(self, batches: Batches, epoch: int, next_batch: int, device: torch.device) -> None:
        self.batches, self.epoch, self.next_batch, self.device = batches, epoch, next_batch, device
        self.queue: Queue[PrefetchedBatch | BaseException] = Queue(QUEUE_LENGTH)
        self.closed = Event()
        self.thread = Thread(target=self._prepare, daemon=True, name="batches")

    def __enter__(self) -> "BatchPrefetcher":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self.thread.join()

    def __iter__(self) -> Iterator[PrefetchedBatch]:
        while True:
            item = self.queue.get()
            if isinstance(item, BaseException):
                raise item
            yield item

    def _prepare(self) -> None:
        try:
            epoch, index = self.epoch, self.next_batch
            while not self.closed.is_set():
                length = self.batches.length(epoch)
                for batch in self.batches.epoch(epoch, index):
                    index += 1
                    if not self._put(PrefetchedBatch(batch.pinned_for(self.device), epoch, index, length)):
                        return
                epoch, index = epoch + 1, 0
        except BaseException as error:
            self._put(error)

    def _put(self, item: PrefetchedBatch | BaseException) -> bool:
        """Queue an item; False if the prefetcher was closed first."""
        while not self.closed.is_set():
            try:
                self.queue.put(item, timeout=0.1)
                return True
            except Full:
                continue
        return False

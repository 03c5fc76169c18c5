"""Endless batches, prepared by a background thread while the device computes."""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from queue import Full, Queue
from threading import Event, Thread

import torch

from regard.data.batch_plans import BatchItems
from regard.data.batches import Batch, Batches

QUEUE_LENGTH = 4
"""Number of batches prepared ahead of time."""


@dataclass(frozen=True)
class PrefetchedBatch:
    """A batch, and the position in the data after it."""

    batch: Batch
    epoch: int
    shard: int
    next_batch: int
    """Index of the next batch within the shard."""
    epochs: float
    """Number of epochs up to this position."""


class BatchPrefetcher:
    """Batches from a given position on. Use it as a context manager, so that its thread ends."""

    def __init__(self, batches: Batches, epoch: int, next_batch: int, device: torch.device, shard: int = 0) -> None:
        self.batches, self.device = batches, device
        self.epoch, self.shard, self.next_batch = epoch, shard, next_batch
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
            for epoch, shard, order in self._planned_shards():
                for index in range(self.next_batch, len(order)):
                    batch = self.batches.share(order[index]).pinned_for(self.device)
                    epochs = epoch + (shard + (index + 1) / len(order)) / self.batches.shards
                    if not self._put(PrefetchedBatch(batch, epoch, shard, index + 1, epochs)):
                        return
                self.next_batch = 0
                if self.closed.is_set():  # a shard may have no batch
                    return
        except BaseException as error:
            self._put(error)

    def _planned_shards(self) -> Iterator[tuple[int, int, list[BatchItems]]]:
        """Yield epoch, shard and the items of its batches. The next shard is planned while one is used."""
        shards = self.batches.shards
        following = count(self.epoch * shards + self.shard)
        number, planned = next(following), Future[list[BatchItems]]()
        self._plan(number, planned)
        while True:
            order = planned.result()
            current, number, planned = number, next(following), Future()
            # It is not waited for at the end: planning a large shard takes seconds.
            Thread(target=self._plan, args=(number, planned), daemon=True, name="plan").start()
            yield *divmod(current, shards), order

    def _plan(self, number: int, planned: Future[list[BatchItems]]) -> None:
        try:
            planned.set_result(self.batches.order(*divmod(number, self.batches.shards)))
        except BaseException as error:
            planned.set_exception(error)

    def _put(self, item: PrefetchedBatch | BaseException) -> bool:
        """Queue an item; False if the prefetcher was closed first."""
        while not self.closed.is_set():
            try:
                self.queue.put(item, timeout=0.1)
                return True
            except Full:
                continue
        return False

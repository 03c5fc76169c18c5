"""Batches without end, made in the background while the device computes."""

from collections.abc import Iterator
from dataclasses import dataclass
from queue import Full, Queue
from threading import Event, Thread

import torch

from regard.data.batches import Batch, Batches

AHEAD = 4
"""batches that wait"""


@dataclass(frozen=True)
class Fed:
    """A batch, and the place behind it."""

    batch: Batch
    epoch: int
    index: int
    """of the next batch within the epoch"""
    length: int
    """batches of the epoch"""


class Feed:
    """The batches from a place on; use as a context, so that the thread ends."""

    def __init__(self, batches: Batches, epoch: int, index: int, device: torch.device) -> None:
        self.batches, self.epoch, self.index, self.device = batches, epoch, index, device
        self.queue: Queue[Fed | BaseException] = Queue(AHEAD)
        self.over = Event()
        self.thread = Thread(target=self._work, daemon=True, name="batches")

    def __enter__(self) -> "Feed":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def __iter__(self) -> Iterator[Fed]:
        while True:
            found = self.queue.get()
            if isinstance(found, BaseException):
                raise found
            yield found

    def _work(self) -> None:
        try:
            epoch, index = self.epoch, self.index
            while not self.over.is_set():
                length = self.batches.length(epoch)
                for batch in self.batches.epoch(epoch, index):
                    index += 1
                    if not self._put(Fed(batch.pinned_for(self.device), epoch, index, length)):
                        return
                epoch, index = epoch + 1, 0
        except BaseException as error:
            self._put(error)

    def _put(self, found: Fed | BaseException) -> bool:
        """Whether it was taken before the feed was over."""
        while not self.over.is_set():
            try:
                self.queue.put(found, timeout=0.1)
                return True
            except Full:
                continue
        return False

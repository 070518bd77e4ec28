"""The worker's memory of context items: by digest, bounded in bytes, filled from the run's own history (decision 7)."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestral_temporal.core.items import WrittenItem, written
from orchestral_temporal.protocol.activities import Item, ModelAttempt

CACHE_BYTES = 128 * 1024 * 1024
"""Canonical bytes of items a worker keeps: the contexts of some hundred runs."""

CONTEXTS_KEPT = 4_096
"""Item lists a worker keeps: one for each run that is active here."""

PULLS_AT_ONCE = 4
"""Histories read at the same time: more make each other late (`temporal/shape-experiments.md` A)."""


@dataclass(frozen=True)
class Manifest:
    """What one attempt in a history says of its context: the list it extends and what it adds."""

    context: str
    base: str | None
    add: tuple[str, ...]


@dataclass(frozen=True)
class StoredItem:
    """An item that a history only names, since its text lies in the artifact store, and the way to get it."""

    digest: str
    load: Callable[[], Awaitable[Item]]


Found = Item | StoredItem | Manifest


@dataclass(frozen=True)
class Context:
    """What an attempt's names stand for: `digests` were computed from the items when they came, not taken on trust."""

    digests: tuple[str, ...]
    items: tuple[WrittenItem, ...]
    tools: WrittenItem


class HistorySource(Protocol):
    """Reads a run's history backwards and yields the items and manifests in it, newest first."""

    def read(self) -> AsyncIterator[Sequence[Found]]:
        """Yield what each page holds."""
        ...


class ContextMissing(Exception):  # noqa: N818 -- a fact about a history
    """The history does not hold what the attempt names: another worker's clock, a stripped history, or a bug."""


class ContextItems:
    """Items by digest and item lists by context digest. Wrong or stale content cannot pass: both are checked."""

    def __init__(self, capacity: int = CACHE_BYTES) -> None:
        self._capacity = capacity
        self._used = 0
        self._items: OrderedDict[str, WrittenItem] = OrderedDict()
        self._contexts: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._pulls = asyncio.Semaphore(PULLS_AT_ONCE)

    def put(self, item: Item) -> WrittenItem:
        """Keep an item and return it written; the oldest ones leave when the capacity is used up."""
        new = written(item)
        if new.digest not in self._items:
            self._items[new.digest] = new
            self._used += len(new.body)
            while self._used > self._capacity and len(self._items) > 1:
                _, old = self._items.popitem(last=False)
                self._used -= len(old.body)
        return new

    async def find(self, digests: Sequence[str], source: Callable[[], HistorySource]) -> dict[str, Item]:
        """Items by digest, from memory or from the run's history.

        Raises:
            ContextMissing: the history does not hold one of them.
        """
        found = {each: kept.item for each in digests if (kept := self.get(each)) is not None}
        if len(found) == len(digests):
            return found
        async with self._pulls:
            async for page in source().read():
                for each in page:
                    if isinstance(each, Manifest) or (isinstance(each, StoredItem) and each.digest not in digests):
                        continue
                    new = await self._loaded(each)
                    found[new.digest] = new.item
                if all(each in found for each in digests):
                    return found
        raise ContextMissing("The history of the run does not hold what its session record names.")

    async def _loaded(self, found: Item | StoredItem) -> WrittenItem:
        """Keep what a history holds or names; what is kept already is not loaded again."""
        if not isinstance(found, StoredItem):
            return self.put(found)
        return self.get(found.digest) or self.put(await found.load())

    def get(self, digest: str) -> WrittenItem | None:
        """An item that is kept."""
        found = self._items.get(digest)
        if found is None:
            return None
        self._items.move_to_end(digest)
        return found

    async def resolve(self, attempt: ModelAttempt, source: Callable[[], HistorySource]) -> Context:
        """The context of an attempt; reads the history for what is missing.

        Raises:
            ContextMissing: the history ended and something is still unknown.
        """
        tail = {new.digest: new for new in map(self.put, attempt.tail)}
        listed = self._listed(attempt)
        if listed is not None:
            found = self._all(listed, attempt.tools, tail)
            if found is not None:
                self._keep(attempt, listed)
                return found
        async with self._pulls:
            return await self._pull(attempt, tail, source())

    def _listed(self, attempt: ModelAttempt) -> tuple[str, ...] | None:
        if attempt.base is None:
            return attempt.add
        base = self._contexts.get(attempt.base)
        return None if base is None else (*base, *attempt.add)

    def _keep(self, attempt: ModelAttempt, listed: tuple[str, ...]) -> None:
        self._contexts[attempt.context] = listed
        self._contexts.move_to_end(attempt.context)
        while len(self._contexts) > CONTEXTS_KEPT:
            self._contexts.popitem(last=False)

    def _all(self, listed: tuple[str, ...], tools: str, extra: dict[str, WrittenItem]) -> Context | None:
        found = [extra.get(each) or self.get(each) for each in (*listed, tools)]
        whole = [each for each in found if each is not None]
        return Context(listed, tuple(whole[:-1]), whole[-1]) if len(whole) == len(found) else None

    async def _pull(self, attempt: ModelAttempt, found: dict[str, WrittenItem], source: HistorySource) -> Context:
        manifests: dict[str, Manifest] = {}
        async for page in source.read():
            for each in page:
                if isinstance(each, Manifest):
                    # A second attempt of a round extends its own context by nothing; the first one says what of.
                    if each.base != each.context:
                        manifests[each.context] = each
                else:
                    new = await self._loaded(each)
                    found[new.digest] = new
            listed = self._folded(attempt, manifests)
            if listed is not None:
                whole = self._all(listed, attempt.tools, found)
                if whole is not None:
                    self._keep(attempt, listed)
                    return whole
        raise ContextMissing(
            f"The history of run {attempt.run_id!r} does not hold the context of round {attempt.round}."
        )

    def _folded(self, attempt: ModelAttempt, manifests: dict[str, Manifest]) -> tuple[str, ...] | None:
        """The item list by way of the manifests: back to a known list or to one that extends nothing."""
        parts: list[tuple[str, ...]] = [attempt.add]
        base = attempt.base
        while base is not None:
            known = self._contexts.get(base)
            if known is not None:
                parts.append(known)
                break
            manifest = manifests.get(base)
            if manifest is None:
                return None
            parts.append(manifest.add)
            base = manifest.base
        return tuple(each for part in reversed(parts) for each in part)

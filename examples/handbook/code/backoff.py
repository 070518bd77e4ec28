"""How a gateway waits before it sends a batch again.

The same rule runs in the firmware, in C. This is the version that the tests compare it with.
"""

import random
from dataclasses import dataclass
from datetime import timedelta

FIRST_WAIT = timedelta(minutes=1)
LONGEST_WAIT = timedelta(minutes=15)
GIVE_UP_AFTER = timedelta(days=9)  # the memory of a Gatepost

TOO_MANY_REQUESTS, SERVER_ERROR = 429, 500


@dataclass(frozen=True)
class Attempt:
    """One try to deliver a batch."""

    number: int
    batch_age: timedelta


def next_wait(attempt: Attempt, chance: random.Random) -> timedelta | None:
    """How long to wait before the next try; None means that the batch is lost.

    Full jitter: a random time between the first wait and the bound, so that three hundred gateways which lost the
    same server do not come back in the same second. We learned that the hard way, twice.
    """
    if attempt.batch_age > GIVE_UP_AFTER:
        return None
    bound = min(LONGEST_WAIT, FIRST_WAIT * 2**attempt.number)
    return FIRST_WAIT + (bound - FIRST_WAIT) * chance.random()


def is_worth_retrying(status: int) -> bool:
    """Server errors and 429 are; other client errors mean that the batch itself is wrong."""
    return status == TOO_MANY_REQUESTS or status >= SERVER_ERROR

"""Many more worlds: `python -m tests.sim --worlds 100000 --seed N`.

Ends at the first world that breaks a law, with its seed and a trace of it: add the seed to `seeds.txt`, with a word on
what it found. With `--worlds 1` the trace is shown in any case.
"""

import argparse
import sys
import time

from tests.sim.law import Broken
from tests.sim.world import play


def main() -> int:
    """Play the worlds; 1 if one breaks a law."""
    reader = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    reader.add_argument("--worlds", type=int, default=1_000, help="how many (1000)")
    reader.add_argument("--seed", type=int, default=0, help="the seed of the first (0)")
    asked = reader.parse_args()
    began = time.monotonic()
    for number, seed in enumerate(range(asked.seed, asked.seed + asked.worlds), start=1):
        try:
            play(seed, say if asked.worlds == 1 else None)
        except Broken as fault:
            if asked.worlds > 1:
                trace(seed)
            say(f"\nseed {seed} breaks a law: {fault}")
            return 1
        if number % 1_000 == 0:
            say(f"{number} worlds in {time.monotonic() - began:.0f} s")
    say(f"{asked.worlds} worlds from seed {asked.seed} hold every law")
    return 0


def trace(seed: int) -> None:
    """Play a world that breaks a law once more, and tell it."""
    try:
        play(seed, say)
    except Broken:
        return


def say(line: str) -> None:
    """Tell a line."""
    print(line, flush=True)  # noqa: T201 -- a command's output


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests`: every gate, in the order in which they are cheapest to fail, and one closing line."""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

ROOMS = ("tests/sim", "tests/house", "tests/replay", "tests/temporal", "tests/crash")

GATES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("format", (str(BIN / "ruff"), "format", "--check", ".")),
    ("lint", (str(BIN / "ruff"), "check", ".")),
    ("imports", (str(BIN / "lint-imports"),)),
    ("types", (str(BIN / "basedpyright"), "--pythonpath", sys.executable)),
    (
        "tests of the core and the guard, every branch",
        (sys.executable, "-m", "pytest", "-q", "tests/core", "tests/contracts", "--cov", "--cov-report=term-missing"),
    ),
    (
        "tests on a real server, and real kills",
        (sys.executable, "-m", "pytest", "-q", *ROOMS),
    ),
)


def main() -> int:
    """Run the gates; stop at the first that fails."""
    for name, command in GATES:
        print(f"== {name}", flush=True)  # noqa: T201 -- this is a command's output
        began = time.monotonic()
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        print(f"== {name}: {'ok' if code == 0 else 'FAILED'} in {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs, models and tools in one process: `python workers/all.py [CONFIG]`."""

import sys

from orchestral_temporal.hosting.running import serve_forever

if __name__ == "__main__":
    serve_forever("all", *sys.argv[1:2])

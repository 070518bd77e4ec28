"""Runs and sessions: `python workers/runs.py [CONFIG]`."""

import sys

from orchestral_temporal.hosting.running import serve_forever

if __name__ == "__main__":
    serve_forever("runs", *sys.argv[1:2])

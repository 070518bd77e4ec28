"""Tool calls: `python workers/tools.py [CONFIG]`."""

import sys

from orchestral_temporal.hosting.running import serve_forever

if __name__ == "__main__":
    serve_forever("tools", *sys.argv[1:2])

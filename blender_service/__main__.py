"""`python -m blender_service [--host HOST] [--port PORT]`: serve the lake of this directory until SIGTERM."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from blender_service.block_cache import DEFAULT_CACHE_BYTES
from blender_service.exceptions import BlenderError
from blender_service.server import DEFAULT_PORT, serve


def main() -> int:
    """Serve; an error that a user can mend is one line and exit status 2."""
    parser = argparse.ArgumentParser(prog="python -m blender_service", description="Stream blends of packed tables.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: loopback only)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"0 for any (default: {DEFAULT_PORT})")
    parser.add_argument("--cache-bytes", type=int, default=DEFAULT_CACHE_BYTES, help="bound of the block files")
    parser.add_argument("--cache-folder", type=Path, help="where they lie, kept and shared (default: a temporary one)")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("pyiceberg").setLevel(logging.WARNING)  # it tells of every table that a read opens
    try:
        serve(arguments.host, arguments.port, arguments.cache_bytes, arguments.cache_folder)
    except BlenderError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

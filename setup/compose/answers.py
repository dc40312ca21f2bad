"""Health check of a container: does an address answer with status 200? Images here have Python, not all have wget."""

import sys
import urllib.request

with urllib.request.urlopen(sys.argv[1], timeout=8) as answer:
    sys.exit(answer.status != 200)

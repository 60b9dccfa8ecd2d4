"""A container's health check: exit code 0 when the process answers this path with 2xx. Standard library only."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request


def main() -> None:
    url = f"http://127.0.0.1:{os.environ.get('POTSTILL_PORT', '8080')}{sys.argv[1]}"
    try:
        urllib.request.urlopen(url, timeout=22).close()
    except urllib.error.HTTPError as error:
        sys.exit(error.read().decode(errors="replace"))
    except OSError as error:
        sys.exit(f"{url}: {error}")


if __name__ == "__main__":
    main()

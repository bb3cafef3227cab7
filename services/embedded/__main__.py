"""`python -m services.embedded status|stop [ROOT]`; `supervise` is internal: it starts the supervisor process."""

import argparse
import json
import sys
from pathlib import Path

from services.embedded import default_root, running, stop_servers
from services.embedded.supervisor import supervise
from services.errors import ConfigurationError


def _status(root: Path) -> int:
    found = running(root)
    if found is None:
        sys.stdout.write(f"no embedded servers are running in {root}\n")
        return 1
    sys.stdout.write(f"postgres  pid {found.postgres_pid}  {found.database_url}\n")
    sys.stdout.write(f"redis     pid {found.redis_pid}  {found.redis_url}\n")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m services.embedded", description=__doc__)
    parser.add_argument("command", choices=("status", "stop", "supervise"))
    parser.add_argument("root", type=Path, nargs="?", default=default_root())
    parser.add_argument("--linger-seconds", type=float, default=3.0)
    parser.add_argument("--postgres-options", type=json.loads, default={})
    arguments = parser.parse_args()
    try:
        if arguments.command == "status":
            return _status(arguments.root)
        if arguments.command == "stop":
            stop_servers(arguments.root)
        else:
            supervise(arguments.root, arguments.linger_seconds, arguments.postgres_options)
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

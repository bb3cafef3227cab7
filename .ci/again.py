"""A second look at a few failed tests: python .ci/again.py, after `make test` has failed.

Most tests start real processes and wait for them. Four at once on two cores can starve one another, and one starved
test in 5,700 would refuse a whole change. So up to MOST failed tests are run once more, alone. A test that passes only
then is named: it is a defect of the test or of the product, and somebody has to look at it. There is no second look for
the tests that docs/guarantees.md names, for errors before a test began, and for more than MOST failures.
"""

import json
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAST_FAILED = ROOT / ".pytest_cache/v/cache/lastfailed"
MOST = 3


def refusal(failed: Sequence[str], promised: Collection[str]) -> str:
    """Why these failures get no second look; empty if they get one."""
    if not failed:
        return "pytest failed without naming a test"
    if len(failed) > MOST:
        return f"{len(failed)} tests failed; at most {MOST} are run again"
    if modules := [test for test in failed if "::" not in test]:
        return f"not a single test: {', '.join(modules)}"
    if promises := [test for test in failed if test.partition("[")[0] in promised]:
        return f"a test of a guarantee failed: {', '.join(promises)}"
    return ""


def main() -> int:
    sys.path.insert(0, str(ROOT))
    from tests.proof.promises import PROMISES

    failed = sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    if why := refusal(failed, {test for promise in PROMISES for test in promise.tests}):
        sys.stdout.write(f"No second look: {why}.\n")
        return 1
    sys.stdout.write(f"A second look, one by one: {', '.join(failed)}\n")
    sys.stdout.flush()
    code = subprocess.run([sys.executable, "-m", "pytest", *failed], cwd=ROOT, check=False).returncode  # noqa: S603 -- node ids that pytest wrote
    if code == 0:
        sys.stdout.write(f"UNSTABLE, passed only alone: {', '.join(failed)}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

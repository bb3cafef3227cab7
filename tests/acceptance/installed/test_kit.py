"""A project's own tests, with the pytest plugin that the wheel brings. Embedded servers, a real replica."""

from pathlib import Path

from tests.support.installed import Installed

# scope="module": the environment is made once
FILES = {
    "services/__init__.py": "VAT = 19\n",
    "shop_jobs.py": """
from enhanced_scheduler import job

import services


@job("vat")
def vat(context, config):
    context.log("adding")
    return {"vat": config["net"] * services.VAT / 100}
""",
    "test_shop.py": """
from enhanced_scheduler.testing import run_job
from shop_jobs import vat


def test_alone():
    assert run_job(vat, {"net": 100}).result == {"vat": 19.0}


def test_by_a_replica(scheduler):
    done = scheduler.run("vat", {"net": 200}, max_retries=0)
    assert done["details"]["result"] == {"vat": 38.0}
""",
    "pytest.ini": "[pytest]\nscheduler_modules = shop_jobs\npythonpath = .\n",
}


def test_a_project_tests_its_jobs_alone_and_with_a_replica(installed: Installed, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = installed.run(installed.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    called = installed.scheduler("job", "run", "vat", "--config", '{"net": 50}', "--json", cwd=tmp_path,
                                 environment={"JOB_MODULES": "shop_jobs", "JOB_PROJECT": "."})  # fmt: skip
    assert '"vat": 9.5' in called.stdout
    assert not (tmp_path / ".embedded").exists(), "neither a schedule nor a server is needed"

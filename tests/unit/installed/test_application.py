"""The application's programs: what they find on their search path, and that they end with their starter."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from config import PROJECT_ROOT
from enhanced_scheduler import Scheduler, SchedulerFailed, application
from tests.support.waiting import eventually


def test_a_program_finds_our_modules_first_and_those_of_the_working_directory_last(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("raise AssertionError('not ours')")
    (tmp_path / "my_jobs.py").write_text("")
    program = tmp_path / "program.py"
    program.write_text("import config, my_jobs, sys; print(config.__file__, sys.path[0], sys.argv[1:])")
    said = subprocess.check_output(application.command(str(program), "--json"), cwd=tmp_path, text=True)
    assert said.split() == [str(PROJECT_ROOT / "config.py"), str(PROJECT_ROOT), "['--json']"]


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
def test_a_program_is_told_to_end_when_its_starter_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import signal, time, pathlib\n"
        "signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path('told').touch(), exit()))\n"
        "pathlib.Path('begun').touch()\n"
        "time.sleep(600)\n"
    )
    starter = (
        "import os, subprocess; from enhanced_scheduler import application\n"
        f"subprocess.run(application.command({str(program)!r}, dies_with=os.getpid()))"
    )
    environment = {"PATH": os.defpath, "PYTHONPATH": str(PROJECT_ROOT)}
    with subprocess.Popen([sys.executable, "-c", starter], cwd=tmp_path, env=environment) as process:
        eventually((tmp_path / "begun").exists, 30)
        process.send_signal(signal.SIGKILL)
    eventually((tmp_path / "told").exists, 30)


def test_a_replica_that_cannot_start_is_an_error_and_leaves_no_process(tmp_path: Path) -> None:
    scheduler = Scheduler(directory=tmp_path, settings={"ENV_FILE": "", "MAX_WORKERS": "none"})
    with pytest.raises(SchedulerFailed, match="ended with exit code 1; its output on stderr says why"):
        scheduler.start()
    assert scheduler.pid is None

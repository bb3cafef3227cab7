# Four images: `runtime` (the default); `celery` adds Celery, for `celery_task` jobs and CELERY_QUEUES; `browser` adds Chromium, for
# deep cookie scans; `fleet` has both, for Celery workers.
FROM python:3.11-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /venv
COPY requirements.txt /
RUN /venv/bin/pip install -r /requirements.txt

FROM build AS build-browser
COPY requirements-browser.txt /
RUN /venv/bin/pip install -r /requirements-browser.txt

FROM build AS build-celery
COPY requirements-celery.txt /
RUN /venv/bin/pip install -r /requirements-celery.txt

FROM build-browser AS build-fleet
COPY requirements-celery.txt /
RUN /venv/bin/pip install -r /requirements-celery.txt

FROM python:3.11-slim-bookworm AS base
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent scheduler
WORKDIR /app
COPY --chown=root:root config.py manage.py run_migrations.py ./
COPY --chown=root:root database ./database
COPY --chown=root:root enhanced_scheduler ./enhanced_scheduler
COPY --chown=root:root migrations ./migrations
COPY --chown=root:root services ./services
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 LOG_FORMAT=json
USER 10001
EXPOSE 9108 8000
# SIGTERM drains; give it SHUTDOWN_GRACE_SECONDS and a little more before SIGKILL.
STOPSIGNAL SIGTERM
CMD ["python", "services/enhanced_scheduler.py"]

FROM base AS browser
USER 0
RUN apt-get update \
 && apt-get install --yes --no-install-recommends chromium fonts-dejavu-core \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build-browser /venv /venv
USER 10001

FROM browser AS fleet
COPY --from=build-fleet /venv /venv
CMD ["celery", "--app", "services.fleet.app", "worker"]

FROM base AS celery
COPY --from=build-celery /venv /venv

FROM base AS runtime
COPY --from=build /venv /venv

"""The addresses of Postgres and Redis: from the settings, otherwise the embedded servers, started once per process.

With only one of the two configured, asking for the other one is an error. A migration needs no Redis and therefore
runs with DATABASE_URL alone.
"""

import atexit
from functools import cache
from urllib.parse import quote

from config import HOME, Settings, get_settings
from services.embedded import Addresses, EmbeddedServers
from services.errors import ConfigurationError


def database_url(settings: Settings) -> str:
    if settings.database_url:
        return settings.database_url.get_secret_value()
    if settings.redis_url or settings.redis_host:
        given = "REDIS_URL" if settings.redis_url else "REDIS_HOST"
        raise ConfigurationError(
            f"{given} is set but DATABASE_URL is not; set DATABASE_URL, or unset {given} to use the embedded servers"
        )
    return embedded_addresses().database_url


def redis_url(settings: Settings) -> str:
    if settings.redis_url:
        return settings.redis_url.get_secret_value()
    if settings.redis_host:
        password = settings.redis_password.get_secret_value() if settings.redis_password else ""
        login = f":{quote(password, safe='')}@" if password else ""
        host = settings.redis_host
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host  # an IPv6 address
        return f"redis://{login}{host}:{settings.redis_port}/{settings.redis_db}"
    if settings.database_url:
        raise ConfigurationError(
            "DATABASE_URL is set but neither REDIS_URL nor REDIS_HOST is; set one of them, "
            "or unset DATABASE_URL to use the embedded servers"
        )
    return embedded_addresses().redis_url


@cache
def embedded_addresses() -> Addresses:
    """Attach this process to the embedded servers until it exits."""
    servers = EmbeddedServers(HOME / get_settings().embedded_dir)
    atexit.register(servers.stop)
    return servers.start()

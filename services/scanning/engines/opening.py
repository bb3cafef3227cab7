"""Opens the engine that the configuration names."""

from config import Settings
from services.fetching import USER_AGENT, Fetcher, session_from
from services.scanning.config import CookieScanConfig
from services.scanning.engines.browser_engine import browser_engine_from
from services.scanning.engines.http_engine import HttpEngine
from services.scanning.findings import EngineName, ScanEngine

# Many servers respond differently, or not at all, to a user agent that does not start like a browser's.
SCAN_USER_AGENT = f"Mozilla/5.0 (compatible; {USER_AGENT})"


def open_engine(config: CookieScanConfig, settings: Settings) -> ScanEngine:
    """Raises ConfigurationError when the engine's browser is missing."""
    match config.engine_name:
        case EngineName.HTTP:
            session = session_from(settings)
            fetcher = Fetcher(session, user_agent=config.user_agent or SCAN_USER_AGENT)
            return HttpEngine(fetcher, session.cookies, config.page_timeout_seconds)
        case EngineName.BROWSER:
            return browser_engine_from(
                settings,
                accept_selector=config.accept_selector,
                page_timeout_seconds=config.page_timeout_seconds,
                user_agent=config.user_agent,
            )

"""Who is trusted: the usual authorities, read once, for the name that was asked for."""

import ssl

from services.fetching import guarded_session
from services.fetching.connecting import _usual_authorities


def test_the_usual_authorities_vouch_for_names() -> None:
    context = _usual_authorities()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.cert_store_stats()["x509_ca"] > 50


def test_all_connections_share_what_was_read_once_unless_a_session_trusts_others(tmp_path: object) -> None:
    adapter = guarded_session(False, "").get_adapter("https://a.example/")
    pools = [adapter.poolmanager.connection_from_url(f"https://{name}.example/") for name in "abc"]  # type: ignore[attr-defined]
    for pool, verify in zip(pools, (True, True, str(tmp_path)), strict=True):
        adapter.cert_verify(pool, "https://x/", verify, None)  # type: ignore[attr-defined]
    assert [pool.conn_kw.get("ssl_context") for pool in pools] == [_usual_authorities(), _usual_authorities(), None]
    assert [pool.cert_reqs for pool in pools] == ["CERT_REQUIRED"] * 3

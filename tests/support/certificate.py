"""A self-signed certificate for 127.0.0.1 and localhost, valid until 2126."""

import ssl
from pathlib import Path


def certificate_file(directory: Path) -> Path:
    """Key and certificate in one file: servers need both, clients can trust it."""
    path = directory / "server.pem"
    path.write_text(SERVER_PEM)
    return path


def server_tls(directory: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file(directory))
    return context


SERVER_PEM = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgPSRVlykIIMwdmYT3
jwNZ7hk01f8zuxMfZ8KOlXjjIBWhRANCAAQSpXztwMzckYDykGo8+35GgIhmTtVL
j/h1iMMjFfILAsKXpbJpJYY8wtfXbGg5SWC8KE6uF+ZoNZqB0ZalmEQN
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBmjCCAUGgAwIBAgIUJYLeZFZXl0YDL9XCdUsuy7vwSl0wCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTExNjE2MDAyM1oYDzIxMjYxMDIz
MTYwMDIzWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQSpXztwMzckYDykGo8+35GgIhmTtVLj/h1iMMjFfILAsKXpbJpJYY8
wtfXbGg5SWC8KE6uF+ZoNZqB0ZalmEQNo28wbTAdBgNVHQ4EFgQUVmz76DhOo72M
asMIWXDFC67IaH0wHwYDVR0jBBgwFoAUVmz76DhOo72MasMIWXDFC67IaH0wDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARhwR/AAABgglsb2NhbGhvc3QwCgYIKoZI
zj0EAwIDRwAwRAIgQAZ3dCTurHihccH7NZQuOzpfhhq2PMq8qTtU5ysTGvECIEE5
+mWXMLxLqrjDbvMkKnhMNCfuZaoHeMuAXlUr9tbY
-----END CERTIFICATE-----
"""

"""DNS lookups in a thread: getaddrinfo has no timeout, and a name server may be slow."""

import socket
import threading
from concurrent.futures import Future


def resolving(host: str, port: int) -> Future[list[str]]:
    """The caller decides how long to wait; the thread ends by itself and blocks nothing."""
    answer: Future[list[str]] = Future()
    answer.set_running_or_notify_cancel()  # a caller that stops waiting does not cancel it

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
            answer.set_result(list(dict.fromkeys(str(entry[4][0]) for entry in found)))
        except (OSError, ValueError, OverflowError) as error:
            answer.set_exception(error)

    threading.Thread(target=ask, name="resolve", daemon=True).start()
    return answer

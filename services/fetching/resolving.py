"""The addresses of a host name, asked for in a thread: getaddrinfo knows no timeout, and a name server may be slow."""

import socket
import threading
from concurrent.futures import Future


def resolving(host: str, port: int) -> Future[list[str]]:
    """Who waits for it decides how long; the thread goes on by itself and holds nobody up."""
    answer: Future[list[str]] = Future()
    answer.set_running_or_notify_cancel()  # who stops waiting does not cancel it

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
            answer.set_result(list(dict.fromkeys(str(entry[4][0]) for entry in found)))
        except (OSError, ValueError, OverflowError) as error:
            answer.set_exception(error)

    threading.Thread(target=ask, name="resolve", daemon=True).start()
    return answer

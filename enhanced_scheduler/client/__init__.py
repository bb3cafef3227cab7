"""A typed client of the HTTP API (`enhanced-scheduler web`), for threads and for asyncio. Standard library only.

    client = Client("http://127.0.0.1:8000", token)
    client.create_schedule({"name": "report", "domain": "report", "frequency": "hourly", "time_config": {"minute": 5}})
    for execution in client.list_executions(schedule="report", status="failed"):
        print(execution["scheduled_for"], execution["error_message"])

Methods are named as the operations of the OpenAPI document (`/api/openapi.json`), and take and return its schemas; both
classes and the schemas are generated from it (shapes.py). Lists with pages are iterators that read page after page.
transport.py says what is repeated.
"""

from enhanced_scheduler.client.asynchronous import AsyncClient
from enhanced_scheduler.client.blocking import Client
from enhanced_scheduler.client.transport import ApiError, Changed, ClientError, NotFound, Unreachable

__all__ = ["ApiError", "AsyncClient", "Changed", "Client", "ClientError", "NotFound", "Unreachable"]
